import type { IncomingMessage, ServerResponse } from 'node:http';
import { utf8 } from '#protocol/bytes';
import { attempt, ProtocolError } from '#protocol/errors';
import { buildEvidence } from '#protocol/evidence/build';
import { isObject, parseStrict, pointerStep, type JsonValue } from '#protocol/json';
import { BY_PATH, QUERY_NAMES, routeFor, type VerdictRoute } from '#protocol/lookup-routes';
import { LOOKUP_FIELDS } from '#protocol/schemas/facade';
import { SCHEMA } from '#protocol/schemas/ids';
import { NOT_FOUND_BODY, unresolvedBody } from '#protocol/state/answers';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Exchange, PublicContext } from '../operation.js';
import {
  sendFailure,
  CACHE_VERDICT,
  JSON_TYPE,
  mayHoldToken,
  send,
  type Answer,
} from '../http/answer.js';
import { Problem, PROBLEMS, readBody, type ProblemCode } from '../http/problem.js';
import { whenFetched } from '../snapshot/snapshot.js';
import { currentValidSnapshot } from '../snapshot/poller.js';
import { VIEW_PATHS, viewAnswer, type ViewName } from './views.js';
import { lookUp, type Resolved } from './resolve.js';

const PUBLIC = '/api/public';
export const VERIFY = `${PUBLIC}/verify`;
const EVIDENCE = `${PUBLIC}/evidence/`;

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
  const target = attempt(() => lookupAt(originForm(url)));
  // If `lookupAt` throws, the URL is a generic lookup.
  return target === undefined ? VERIFY : (target?.template ?? null);
}

/** Handles GET and HEAD on the lookup routes; returns false for any other request. */
export function handleLookup(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  requestId: string,
): boolean {
  if (req.method !== 'GET' && req.method !== 'HEAD') return false;
  const url = originForm(req.url ?? '/');
  if (!url.startsWith(PUBLIC)) return false;
  const exchange: Exchange = { ctx, req, res, requestId, route: VERIFY };
  const count = (): void => ctx.metrics?.countRequest(exchange.route, req.method!, res.statusCode);
  try {
    const target = lookupAt(url);
    if (target === null) return false;
    exchange.route = target.template;
    const answering = answerLookup(exchange, target);
    if (answering === undefined) count();
    else void answering.then(count);
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
 * Returns null when the URL is not a lookup. Throws a {@link Problem} for a generic lookup without
 * exactly one id.
 */
export function lookupAt(url: string): RequestedLookup | null {
  const query = url.indexOf('?');
  const path = query < 0 ? url : url.slice(0, query);
  if (path !== VERIFY) return lookupByPath(path);
  return {
    route: routeFor('identifier'),
    template: VERIFY,
    requested: requestedByQuery(query < 0 ? '' : url.slice(query + 1)),
  };
}

/** The path and query of a URL, which proxies may send in absolute form (RFC 9112 §3.2.2). */
export function originForm(url: string): string {
  return url.startsWith('/') ? url : url.replace(/^https?:\/\/[^/?]*/i, '');
}

function lookupByPath(path: string): RequestedLookup | null {
  if (path.startsWith(`${VERIFY}/`)) return verdictAt(path.slice(VERIFY.length + 1));
  if (path.startsWith(EVIDENCE)) return evidenceAt(path.slice(EVIDENCE.length));
  return path.startsWith(`${PUBLIC}/`) ? aliasAt(path.slice(PUBLIC.length + 1)) : null;
}

/** Splits at the first slash. */
function cut(path: string): [first: string, rest: string | undefined] {
  const slash = path.indexOf('/');
  return slash < 0 ? [path, undefined] : [path.slice(0, slash), path.slice(slash + 1)];
}

/** Parses `{kind}/{identifier}`. */
function verdictAt(path: string): RequestedLookup | null {
  const [name, rest] = cut(path);
  if (rest === undefined || !Object.hasOwn(BY_PATH, name)) return null;
  const route: VerdictRoute = BY_PATH[name as keyof typeof BY_PATH];
  // The proof route takes the rest of the path as the identifier, even if malformed; other routes take one segment.
  const takesRest = route.unmatched === 'not-found';
  if (!takesRest && (rest === '' || rest.includes('/'))) return null;
  return { route, requested: decoded(rest), template: TEMPLATES[name]!.verify };
}

/** Parses `{kind}/{identifier}`, but not for the kind `proof`, and `{kind}/{identifier}/{view}`. */
function aliasAt(path: string): RequestedLookup | null {
  const [name, rest = ''] = cut(path);
  const [identifier, suffix] = cut(rest);
  if (identifier === '' || !Object.hasOwn(VIEW_PATHS, name)) return null;
  const route: VerdictRoute = BY_PATH[name as keyof typeof BY_PATH];
  const requested = decoded(identifier);
  const template = TEMPLATES[name]!.alias;
  const isProof = route.unmatched === 'not-found';
  if (suffix === undefined) return isProof ? null : { route, requested, template };
  const view = VIEW_PATHS[name]!.get(suffix);
  return view ? { route, requested, view, template: `${template}/${suffix}` } : null;
}

/** Parses `{identifier}`. */
function evidenceAt(path: string): RequestedLookup | null {
  if (path === '' || path.includes('/')) return null;
  const template = `${EVIDENCE}{identifier}`;
  return { route: routeFor('identifier'), requested: decoded(path), view: 'evidence', template };
}

/** Percent-decodes a path segment; returns an invalid encoding unchanged. */
export const decoded = (segment: string): string =>
  segment.includes('%') ? (attempt(() => decodeURIComponent(segment)) ?? segment) : segment;

/** The identifier in a query. Throws unless exactly one of {@link QUERY_NAMES} is given, once. */
export function requestedByQuery(query: string): string {
  const parameters = new URLSearchParams(query);
  const given = QUERY_NAMES.flatMap((name) => parameters.getAll(name));
  const [requested = ''] = given;
  if (given.length > 1) {
    throw new Problem(
      'identifier_ambiguous',
      'Send exactly one of the parameters identifier, q and id.',
    );
  }
  if (requested === '') {
    throw new Problem(
      'identifier_missing',
      'Send the identifier to look up as ?identifier= (or q, or id).',
    );
  }
  return requested;
}

/** Answers a lookup by POST. Its body, and so an error that quotes the body, may contain a share token. */
export async function postLookup(
  exchange: Exchange,
  view: Pick<LookupTarget, 'view'> = {},
): Promise<void> {
  try {
    const target = requestedByBody(await readBody(exchange.req));
    exchange.secret = mayHoldToken(target.requested);
    await answerLookup(exchange, { ...target, ...view });
  } catch (error) {
    sendFailure({ ...exchange, secret: true }, error);
  }
}

export function requestedByBody(body: Uint8Array): LookupTarget {
  const document = parseBody(body);
  if (!isObject(document)) {
    throw invalid('invalid_field', '', 'Expected a JSON object.');
  }
  const members = new Map(Object.entries(document));
  if (members.get('schema_version') !== SCHEMA.lookupRequest) {
    throw invalid('unsupported_schema_version', '/schema_version', `Send ${SCHEMA.lookupRequest}.`);
  }
  for (const name of members.keys()) {
    if (!['schema_version', ...LOOKUP_FIELDS].includes(name)) {
      throw invalid('unknown_field', pointerStep(name), 'Unknown field. Remove it.');
    }
  }
  const [field, second] = LOOKUP_FIELDS.filter((name) => members.has(name));
  if (field === undefined) {
    throw invalid('identifier_missing', '', `Send one of ${LOOKUP_FIELDS.join(', ')}.`);
  }
  if (second !== undefined) {
    throw invalid('identifier_ambiguous', pointerStep(second), 'Send one identifier field only.');
  }
  const requested = members.get(field);
  if (typeof requested !== 'string' || requested === '' || requested.length > 1024) {
    throw invalid(
      'invalid_field',
      pointerStep(field),
      'Expected a string of 1 to 1024 UTF-16 code units.',
    );
  }
  return { route: routeFor(field), requested };
}

function parseBody(body: Uint8Array): JsonValue {
  try {
    return parseStrict(body);
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    const isKnown = Object.hasOwn(PROBLEMS, error.code);
    const code = isKnown ? (error.code as ProblemCode) : 'malformed_json';
    throw invalid(code, error.pointer ?? '', error.message);
  }
}

function invalid(code: ProblemCode, pointer: string, detail: string): Problem {
  return new Problem(code, detail, { errors: [{ pointer, detail }] });
}

export interface LookupTarget {
  route: VerdictRoute;
  requested: string;
  /** The requested view of the artifact, or the evidence; absent when the verdict itself is requested. */
  view?: ViewName | 'evidence';
}

/** Responds to a lookup: at once, unless it needs log files or a page of the map that is not in memory. */
function answerLookup(exchange: Exchange, target: LookupTarget): void | Promise<void> {
  const { route, view } = target;
  // On the share route every identifier counts as a token.
  if (route.isSecret === true) exchange.secret = true;
  const fail = (error: unknown): void => sendFailure(exchange, error);
  try {
    const sent =
      view === undefined
        ? whenFetched(() => sendVerdict(exchange, target))
        : view === 'evidence'
          ? sendEvidence(exchange, target)
          : sendView(exchange, target, view);
    return sent instanceof Promise ? sent.catch(fail) : sent;
  } catch (error) {
    fail(error);
  }
}

/** Headers for an identifier that may resolve later, usually after about one publish cycle. */
export const RETRY_SOON = { 'Retry-After': '1' };

function sendVerdict(exchange: Exchange, target: LookupTarget): void {
  const { ctx } = exchange;
  const { route, requested } = target;
  const snapshot = currentValidSnapshot(ctx);
  const { resolved, isExpected } = lookUp(snapshot, target, ctx.clock.now());
  const answer = verdictAnswer(route, requested, resolved);
  if (isExpected) answer.headers = RETRY_SOON;
  send(exchange, snapshot, answer);
  const unresolved = route.unmatched === 'not-found' ? 'NOT_FOUND' : 'BACKEND_LOOKUP_REQUIRED';
  ctx.metrics?.countVerdict(resolved?.status ?? unresolved);
}

async function sendEvidence(exchange: Exchange, target: LookupTarget): Promise<void> {
  const { ctx } = exchange;
  const { requested, route } = target;
  const snapshot = currentValidSnapshot(ctx);
  const proof = await ctx.checkpoints.snapshotProof(snapshot);
  const evidence = await whenFetched(() =>
    buildEvidence(nativeSha256, requested, (query) => snapshot.search(query), {
      snapshot: snapshot.entry,
      tlogProof: proof.text,
    }),
  );
  const body = sendable(JSON.stringify(evidence));
  // Within a generation only the tlog-proof changes: cosignatures arrive after the snapshot.
  const etag = proof.tag;
  const answer: Answer = { status: 200, type: JSON_TYPE, cache: CACHE_VERDICT, body, etag };
  // Evidence covers proofs of any age, so the limit of generic lookups to recent proofs does not apply.
  const ofAnyAge = { route: { ...route, windowed: false }, requested };
  const { isExpected } = await whenFetched(() => lookUp(snapshot, ofAnyAge, ctx.clock.now()));
  if (isExpected) answer.headers = RETRY_SOON;
  send(exchange, snapshot, answer);
}

async function sendView(exchange: Exchange, target: LookupTarget, view: ViewName): Promise<void> {
  const { ctx } = exchange;
  const snapshot = currentValidSnapshot(ctx);
  const { resolved, isExpected } = await whenFetched(() =>
    lookUp(snapshot, target, ctx.clock.now()),
  );
  const answer = await viewAnswer(ctx, snapshot, target, resolved, view);
  if (isExpected) answer.headers = RETRY_SOON;
  send(exchange, snapshot, answer);
}

/** The response of a route, built without object spread, which would cost a fifth of a lookup. */
export function verdictAnswer(
  route: VerdictRoute,
  requested: string,
  resolved: Resolved | null,
): Answer {
  if (resolved === null) {
    return route.unmatched === 'not-found'
      ? { status: 404, type: JSON_TYPE, cache: CACHE_VERDICT, body: NOT_FOUND_BODY }
      : {
          status: 200,
          type: JSON_TYPE,
          cache: CACHE_VERDICT,
          body: utf8(unresolvedBody(route.unmatched, requested)),
        };
  }
  const { body, proofs } = resolved;
  const sent = sendable(body, proofs[0].log.origin);
  // `send` adds the snapshot to the ETag; the kind and the snapshot determine the answer of this URL.
  return { status: 200, type: JSON_TYPE, cache: CACHE_VERDICT, body: sent, etag: resolved.kind };
}

/**
 * Leaves ASCII as text, which Node sends faster than bytes.
 *
 * @param checked the part of the text that may contain other characters
 */
function sendable(text: string, checked = text): string | Uint8Array {
  return Buffer.byteLength(checked) === checked.length ? text : utf8(text);
}
