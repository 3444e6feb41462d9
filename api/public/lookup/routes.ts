import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ArtifactKind } from '#protocol/status';
import type { Exchange, PublicContext } from '../context.js';
import { sendFailure } from '../http/answer.js';
import { VIEW_PATHS } from '../views/views.js';
import { genericRoute, requestedByQuery } from './generic.js';
import { PACKAGE_KIND, SHARED, type LookupName, type VerdictRoute } from './resolve.js';
import { answerLookup, type LookupTarget } from './verdict.js';

const byPath = (kind: ArtifactKind, ...ids: LookupName[]): VerdictRoute => ({
  matches: Object.fromEntries(ids.map((id) => [id, kind])),
  windowed: false,
  unmatched: kind,
});

/** Lookups by path, over the whole history. */
export const BY_PATH: Record<string, VerdictRoute> = {
  proof: { ...byPath('proof', 'proof_id'), unmatched: 'not-found' },
  certificate: byPath('certificate', 'certificate_id', 'certificate_ref', 'trust_asset_id'),
  passport: byPath('passport', 'passport_id', 'passport_ref', 'execution_passport_id'),
  trust: byPath('trust', 'trust_id', 'trust_ref', 'trust_asset_id'),
  'trust-asset': byPath('trust', 'trust_asset_id'),
  share: { ...byPath('proof'), matches: { share_token: SHARED }, isSecret: true },
  package: byPath(PACKAGE_KIND, 'package_id'),
};

const PUBLIC = '/api/public';
export const VERIFY = `${PUBLIC}/verify`;

/** The path parameter of a lookup. */
export function parameterOf(name: string): string {
  return name === 'share' ? 'share_token' : `${name.replace('-', '_')}_id`;
}

const TEMPLATES = Object.fromEntries(
  Object.keys(BY_PATH).map((name) => {
    const end = `/${name}/{${parameterOf(name)}}`;
    return [name, { verify: VERIFY + end, alias: PUBLIC + end }];
  }),
);

/** The documented path of a lookup URL; null for any other URL. */
export function routeOfLookup(url: string): string | null {
  try {
    return lookupAt(originForm(url))?.template ?? null;
  } catch {
    // Only the generic lookup throws.
    return VERIFY;
  }
}

/** Handles GET and HEAD on the lookup routes; returns false for any other request. */
export function handleLookup(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
): boolean {
  if (req.method !== 'GET' && req.method !== 'HEAD') return false;
  const url = originForm(req.url ?? '/');
  if (!url.startsWith(PUBLIC)) return false;
  const exchange: Exchange = { ctx, req, res, route: VERIFY };
  const count = (): void => ctx.metrics?.countRequest(exchange.route, req.method!, res.statusCode);
  try {
    const target = lookupAt(url);
    if (target === null) return false;
    exchange.route = target.template;
    void answerLookup(exchange, target).then(count);
  } catch (error) {
    sendFailure(exchange, error);
    count();
  }
  return true;
}

export interface RequestedLookup extends LookupTarget {
  /** The documented path. */
  template: string;
}

/**
 * Parses a URL in origin form; null when it is not a lookup. Throws a {@link Problem} for a generic
 * lookup without exactly one identifier.
 */
export function lookupAt(url: string): RequestedLookup | null {
  const query = url.indexOf('?');
  const path = query < 0 ? url : url.slice(0, query);
  if (path !== VERIFY) return lookupByPath(path);
  return {
    route: genericRoute,
    template: VERIFY,
    requested: requestedByQuery(query < 0 ? '' : url.slice(query + 1)),
  };
}

/** Proxies may send the absolute form (RFC 9112 §3.2.2). */
export function originForm(url: string): string {
  return url.startsWith('/') ? url : url.replace(/^https?:\/\/[^/?]*/i, '');
}

function lookupByPath(path: string): RequestedLookup | null {
  if (!path.startsWith(PUBLIC + '/')) return null;
  const isAlias = !path.startsWith(VERIFY + '/');
  const start = (isAlias ? PUBLIC : VERIFY).length + 1;
  const slash = path.indexOf('/', start);
  if (slash < 0) return null;
  const name = path.slice(start, slash);
  const route = Object.hasOwn(BY_PATH, name) ? BY_PATH[name] : undefined;
  if (route === undefined || (isAlias && !Object.hasOwn(VIEW_PATHS, name))) return null;
  const rest = path.slice(slash + 1);
  // The proof route takes the whole rest as the identifier, even malformed; others take one segment.
  const template = isAlias ? TEMPLATES[name]!.alias : TEMPLATES[name]!.verify;
  if (route.unmatched === 'not-found') return { route, requested: decoded(rest), template };
  const end = rest.indexOf('/');
  if (rest === '' || end === 0) return null;
  if (end < 0) return { route, requested: decoded(rest), template };
  const view = isAlias ? VIEW_PATHS[name]!.get(rest.slice(end + 1)) : undefined;
  if (view === undefined) return null;
  const viewTemplate = `${template}/${rest.slice(end + 1)}`;
  return { route, requested: decoded(rest.slice(0, end)), view, template: viewTemplate };
}

/** Decodes a path segment; an invalid encoding stays as it is. */
export function decoded(segment: string): string {
  if (!segment.includes('%')) return segment;
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
