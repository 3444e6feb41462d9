import { utf8 } from '#protocol/bytes';
import { NOT_FOUND_BODY, responseHead, unresolvedBody } from '#protocol/snapshot/head';
import { STATUSES } from '#protocol/status';
import type { Exchange } from '../context.js';
import {
  CACHE_PRIVATE,
  CACHE_VERDICT,
  JSON_TYPE,
  send,
  sendFailure,
  type Answer,
} from '../http/answer.js';
import { currentValidSnapshot } from '../snapshot/poller.js';
import { viewAnswer, type ViewName } from '../views/views.js';
import { isSecret, resolve, type Resolved, type VerdictRoute } from './resolve.js';

export interface LookupTarget {
  route: VerdictRoute;
  requested: string;
  /** The requested view; the verdict when absent. */
  view?: ViewName;
}

/** Performs one lookup and relays the published status without recomputing it. */
export async function answerLookup(exchange: Exchange, target: LookupTarget): Promise<void> {
  const { ctx } = exchange;
  const { route, requested, view } = target;
  try {
    const snapshot = currentValidSnapshot(ctx);
    const resolved = await resolve(ctx, snapshot, route, requested);
    if (view === undefined) {
      send(exchange, snapshot, verdictAnswer(route, requested, resolved));
      ctx.metrics?.countVerdict(statusIn(route, resolved));
    } else {
      const answer = await viewAnswer(ctx, snapshot, route, requested, resolved, view);
      send(exchange, snapshot, answer);
    }
  } catch (error) {
    sendFailure({ ...exchange, secret: isSecret(route, requested) }, error);
  }
}

/** The response of a route for a resolved or unresolved identifier. Spreading objects here costs a fifth of a lookup. */
export function verdictAnswer(
  route: VerdictRoute,
  requested: string,
  resolved: Resolved | null,
): Answer {
  const secret = isSecret(route, requested);
  const cache = secret ? CACHE_PRIVATE : CACHE_VERDICT;
  if (resolved === null) {
    return route.unmatched === 'not-found'
      ? { status: 404, type: JSON_TYPE, cache, body: NOT_FOUND_BODY }
      : {
          status: 200,
          type: JSON_TYPE,
          cache,
          body: utf8(unresolvedBody(route.unmatched, requested)),
        };
  }
  const { kind, matchedOn, record, body } = resolved;
  const answer: Answer = {
    status: 200,
    type: JSON_TYPE,
    cache,
    // Latin-1 keeps the bytes of the record; a resolved identifier is ASCII.
    body:
      responseHead(kind, requested, matchedOn) +
      buffer(body.part).toString('latin1') +
      buffer(body.tail).toString('latin1'),
  };
  if (!secret) answer.etag = `${buffer(record.digest).toString('hex')}-${kind}`;
  return answer;
}

/** Every rendered part begins with this text. */
const STATUS_AT = '"verification":{"verification_status":"'.length;
const QUOTE = 0x22;

/** Two letters identify a status, which avoids creating a string on the hot path. */
const BY_FIRST_TWO = new Map<number, string>(
  STATUSES.map((status) => [(status.charCodeAt(0) << 8) | status.charCodeAt(1), status]),
);

/** The status for metrics; `other` when the part was rendered differently. */
function statusIn(route: VerdictRoute, resolved: Resolved | null): string {
  if (resolved === null) {
    return route.unmatched === 'not-found' ? 'NOT_FOUND' : 'BACKEND_LOOKUP_REQUIRED';
  }
  const { part } = resolved.body;
  const status = BY_FIRST_TWO.get((part[STATUS_AT]! << 8) | part[STATUS_AT + 1]!);
  return status !== undefined && part[STATUS_AT + status.length] === QUOTE ? status : 'other';
}

function buffer(bytes: Uint8Array): Buffer {
  if (Buffer.isBuffer(bytes)) return bytes;
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
