import type { IncomingMessage, ServerResponse } from 'node:http';
import { NOT_FOUND_BODY, responseHead, unresolvedBody } from '#protocol/snapshot/head';
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
import { assertingSnapshot, unreadable } from '../snapshot/serving.js';
import type { Snapshot } from '../snapshot/snapshot.js';
import { resolve, type Resolved, type VerdictRoute } from './resolve.js';

/** The answer to a lookup, and the snapshot that it was drawn from. */
export interface RelayedVerdict {
  snapshot: Snapshot;
  answer: Answer;
}

/**
 * One lookup. It relays what was published: the status in the body was set by the verification
 * system and is not looked at here. A promise only where the snapshot is not on this machine;
 * throws a {@link Problem} when nothing may be asserted, and whatever reading throws.
 */
export function lookUp(
  ctx: PublicContext,
  route: VerdictRoute,
  requested: string,
): RelayedVerdict | Promise<RelayedVerdict> {
  const snapshot = assertingSnapshot(ctx);
  const relayed = (resolved: Resolved | null): RelayedVerdict => ({
    snapshot,
    answer: verdictAnswer(route, requested, resolved),
  });
  const resolved = resolve(ctx, snapshot, route, requested);
  return resolved instanceof Promise ? resolved.then(relayed) : relayed(resolved);
}

/** What a route says of `requested`, once it is known what that leads to there. */
export function verdictAnswer(
  route: VerdictRoute,
  requested: string,
  resolved: Resolved | null,
): Answer {
  if (resolved === null) return unmatchedAnswer(route, requested);
  return foundAnswer(requested, resolved, isSecret(route, requested));
}

/** Sends what `look` comes to, also when that is an error. */
export function answerWith(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  look: () => RelayedVerdict | Promise<RelayedVerdict>,
  secret: boolean,
): void {
  const finish = ({ snapshot, answer }: RelayedVerdict): void => {
    send(ctx, req, res, snapshot, answer);
  };
  const fail = (error: unknown): void => {
    sendFailure(ctx, req, res, error, unreadable, secret);
  };
  try {
    const relayed = look();
    if (relayed instanceof Promise) relayed.then(finish).catch(fail);
    else finish(relayed);
  } catch (error) {
    fail(error);
  }
}

/** Answers a request with one lookup. */
export function answerVerdict(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  route: VerdictRoute,
  requested: string,
): void {
  answerWith(ctx, req, res, () => lookUp(ctx, route, requested), isSecret(route, requested));
}

/** Whether the answer may be about a share token: no cache may have it then, and no tag names it. */
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
    // An identifier that resolves is ASCII, and Latin-1 keeps the record's bytes as they are.
    body: responseHead(kind, requested, matchedOn) + latin1(body.part) + latin1(body.tail),
    ...(secret ? {} : { etag: `"${hex(record.digest)}-${kind}"` }),
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
