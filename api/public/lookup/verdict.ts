import type { IncomingMessage, ServerResponse } from 'node:http';
import { NOT_FOUND_BODY, responseHead, unresolvedBody } from '#protocol/snapshot/head';
import { STATUSES } from '#protocol/status';
import {
  CACHE_PRIVATE,
  CACHE_VERDICT,
  JSON_TYPE,
  send,
  sendFailure,
  type Answer,
} from '../http/answer.js';
import type { PublicContext } from '../context.js';
import { mayHoldToken } from '../http/secrets.js';
import { currentValidSnapshot, unreadable } from '../snapshot/serving.js';
import type { Snapshot } from '../snapshot/snapshot.js';
import { resolve, type Resolved, type VerdictRoute } from './resolve.js';

/** The response to a lookup and the snapshot behind it. */
export interface RelayedVerdict {
  snapshot: Snapshot;
  answer: Answer;
  /** The verification status, for metrics; absent for views. */
  status?: string;
}

/**
 * Performs one lookup and relays the published status without recomputing it. Asynchronous only when the
 * snapshot is remote. Throws a {@link Problem} without a valid snapshot.
 */
export function lookUp(
  ctx: PublicContext,
  route: VerdictRoute,
  requested: string,
): RelayedVerdict | Promise<RelayedVerdict> {
  const snapshot = currentValidSnapshot(ctx);
  const relayed = (resolved: Resolved | null): RelayedVerdict => {
    const answer = verdictAnswer(route, requested, resolved);
    if (ctx.metrics === undefined) return { snapshot, answer };
    return { snapshot, answer, status: statusIn(route, resolved) };
  };
  const resolved = resolve(ctx, snapshot, route, requested);
  return resolved instanceof Promise ? resolved.then(relayed) : relayed(resolved);
}

/** The response of a route for a resolved or unresolved identifier. */
export function verdictAnswer(
  route: VerdictRoute,
  requested: string,
  resolved: Resolved | null,
): Answer {
  if (resolved === null) return unmatchedAnswer(route, requested);
  return foundAnswer(requested, resolved, isSecret(route, requested));
}

/**
 * Sends the result or error of `lookup`.
 *
 * @param template the documented path, to count and log it under; null where Express counts it
 */
export function answerWith(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  lookup: () => RelayedVerdict | Promise<RelayedVerdict>,
  secret: boolean,
  template: string | null,
): void {
  const { metrics } = ctx;
  const finish = ({ snapshot, answer, status }: RelayedVerdict): void => {
    send(ctx, req, res, snapshot, answer);
    if (metrics === undefined) return;
    if (status !== undefined) metrics.countVerdict(status);
    if (template !== null) metrics.countRequest(template, req.method ?? '', res.statusCode);
  };
  const fail = (error: unknown): void => {
    sendFailure(ctx, req, res, error, unreadable, template, secret);
    if (template !== null) metrics?.countRequest(template, req.method ?? '', res.statusCode);
  };
  try {
    const relayed = lookup();
    if (relayed instanceof Promise) relayed.then(finish).catch(fail);
    else finish(relayed);
  } catch (error) {
    fail(error);
  }
}

export function answerVerdict(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  route: VerdictRoute,
  requested: string,
  template: string | null,
): void {
  const secret = isSecret(route, requested);
  answerWith(ctx, req, res, () => lookUp(ctx, route, requested), secret, template);
}

/** Whether the response may concern a share token: it then gets no ETag and must not be cached. */
export function isSecret(route: VerdictRoute, requested: string): boolean {
  return route.isSecret === true || mayHoldToken(requested);
}

function foundAnswer(
  requested: string,
  { kind, matchedOn, record, body }: Resolved,
  secret: boolean,
): Answer {
  return {
    status: 200,
    type: JSON_TYPE,
    cache: secret ? CACHE_PRIVATE : CACHE_VERDICT,
    // Latin-1 keeps the bytes of the record; a resolved identifier is ASCII.
    body: responseHead(kind, requested, matchedOn) + latin1(body.part) + latin1(body.tail),
    ...(secret ? {} : { etag: `${hex(record.digest)}-${kind}` }),
  };
}

function unmatchedAnswer(route: VerdictRoute, requested: string): Answer {
  const cache = isSecret(route, requested) ? CACHE_PRIVATE : CACHE_VERDICT;
  if (route.unmatched === 'not-found') {
    return { status: 404, type: JSON_TYPE, cache, body: NOT_FOUND_BODY };
  }
  return {
    status: 200,
    type: JSON_TYPE,
    cache,
    body: Buffer.from(unresolvedBody(route.unmatched, requested)),
  };
}

/** Every rendered part begins with this text. */
const STATUS_AT = '"verification":{"verification_status":"'.length;

/** The status for metrics; `other` when the part was rendered differently. */
function statusIn(route: VerdictRoute, resolved: Resolved | null): string {
  if (resolved === null) {
    return route.unmatched === 'not-found' ? 'NOT_FOUND' : 'BACKEND_LOOKUP_REQUIRED';
  }
  const { part } = resolved.body;
  const status = BY_FIRST_TWO.get((part[STATUS_AT]! << 8) | part[STATUS_AT + 1]!);
  return status !== undefined && part[STATUS_AT + status.length] === QUOTE ? status : 'other';
}

const QUOTE = 0x22;

/** Two letters identify a status, which avoids creating a string on the hot path. */
const BY_FIRST_TWO = new Map<number, string>(
  STATUSES.map((status) => [(status.charCodeAt(0) << 8) | status.charCodeAt(1), status]),
);

function latin1(bytes: Uint8Array): string {
  return buffer(bytes).toString('latin1');
}

function hex(bytes: Uint8Array): string {
  return buffer(bytes).toString('hex');
}

function buffer(bytes: Uint8Array): Buffer {
  if (Buffer.isBuffer(bytes)) return bytes;
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
