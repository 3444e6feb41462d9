import type { IncomingMessage, ServerResponse } from 'node:http';
import type { PublicContext } from '../context.js';
import { genericRoute, requestedByQuery } from './generic.js';
import { sendFailure } from '../http/answer.js';
import { unreadable } from '../snapshot/serving.js';
import { answerVerdict, type VerdictRoute } from './verdict.js';

/** Lookups by path, over the whole history (spec 4.1). */
const BY_PATH: Record<string, VerdictRoute> = {
  proof: { matches: { proof_id: 'proof' }, windowed: false, unmatched: 'not-found' },
  certificate: {
    matches: {
      certificate_id: 'certificate',
      certificate_ref: 'certificate',
      trust_asset_id: 'certificate',
    },
    windowed: false,
    unmatched: 'certificate',
  },
  passport: {
    matches: {
      passport_id: 'passport',
      passport_ref: 'passport',
      execution_passport_id: 'passport',
    },
    windowed: false,
    unmatched: 'passport',
  },
  trust: {
    matches: { trust_id: 'trust', trust_ref: 'trust', trust_asset_id: 'trust' },
    windowed: false,
    unmatched: 'trust',
  },
  'trust-asset': { matches: { trust_asset_id: 'trust' }, windowed: false, unmatched: 'trust' },
  // Nothing is shared or packaged in a snapshot of this version: neither resolves.
  share: { matches: {}, windowed: false, unmatched: 'proof' },
  package: { matches: {}, windowed: false, unmatched: 'trust' },
};

export const VERIFY = '/api/public/verify';
/** The paths below it that are lookups; an identifier follows. */
export const LOOKUP_PATHS = Object.keys(BY_PATH).map((name) => `${VERIFY}/${name}`);

/**
 * Answers GET and HEAD on the lookup routes; false, with nothing done, for every other request.
 * It is called in front of the Express app, and by the app itself, so there is one implementation.
 */
export function handleLookup(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
): boolean {
  if (req.method !== 'GET' && req.method !== 'HEAD') return false;
  const url = originForm(req.url ?? '/');
  if (!url.startsWith(VERIFY)) return false;
  try {
    const asked = lookupAt(url);
    if (asked === null) return false;
    answerVerdict(ctx, req, res, asked.route, asked.requested);
  } catch (error) {
    sendFailure(ctx, req, res, error, unreadable);
  }
  return true;
}

/** Which identifier to look up, and as what. */
export interface AskedLookup {
  route: VerdictRoute;
  requested: string;
}

/**
 * The lookup that a URL in origin form asks for; null when it is none. Throws a {@link Problem}
 * for a generic lookup that names no identifier, or several.
 */
export function lookupAt(url: string): AskedLookup | null {
  const query = url.indexOf('?');
  const path = query < 0 ? url : url.slice(0, query);
  if (path !== VERIFY) return verdictRouteOf(path);
  return {
    route: genericRoute,
    requested: requestedByQuery(query < 0 ? '' : url.slice(query + 1)),
  };
}

/** A proxy may send the whole URL (RFC 9112 §3.2.2). */
export function originForm(url: string): string {
  return url.startsWith('/') ? url : url.replace(/^https?:\/\/[^/?]*/i, '');
}

/** The lookup route that a path is, and what stands at its end. */
function verdictRouteOf(path: string): AskedLookup | null {
  if (!path.startsWith(VERIFY + '/')) return null;
  const start = VERIFY.length + 1;
  const slash = path.indexOf('/', start);
  if (slash < 0) return null;
  const name = path.slice(start, slash);
  const route = Object.hasOwn(BY_PATH, name) ? BY_PATH[name] : undefined;
  const requested = path.slice(slash + 1);
  if (route === undefined) return null;
  // To the proof route everything is an identifier, however malformed; elsewhere it is one segment.
  if (route.unmatched !== 'not-found' && (requested === '' || requested.includes('/'))) return null;
  return { route, requested: decoded(requested) };
}

function decoded(segment: string): string {
  if (!segment.includes('%')) return segment;
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
