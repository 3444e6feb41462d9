import { utf8 } from '#protocol/bytes';
import { hashHex } from '#protocol/hash';
import { nativeSha256 } from '#runtime/crypto/node';
import { logRarely } from '#runtime/process/log';
import type { UnreadAnswer, UnreadReason } from '#runtime/http/server';
import {
  securityHeaders,
  endDiscarding,
  leavesLongBody,
  UNREAD_DETAILS,
  unreadAnswer,
} from '../../http/responses.js';
import type { Exchange } from '../operation.js';
import type { Snapshot } from '../snapshot/snapshot.js';
import { Problem, unreadable } from './problem.js';

/** A short `max-age`, because a verdict can change with the next snapshot. */
export const CACHE_VERDICT = 'public, max-age=1';
/** Time before the expiry of a snapshot in which caches store no verdict: nginx counts whole seconds, a CDN adds its own. */
const UNCACHED_MS = 10_000;
/** A short `max-age`, so that clients fetch new documents soon after a deployment. */
const CACHE_FIXED = 'public, max-age=60';
export const CACHE_IMMUTABLE = 'public, max-age=31536000, immutable';
export const CACHE_NEVER = 'no-store';
/** `Cache-Control` of responses to a request that may contain a share token. */
const CACHE_PRIVATE = 'private, no-store';

export const JSON_TYPE = 'application/json; charset=utf-8';

/**
 * Headers of every response. CORS for every origin: no response depends on the client, so none varies with `Origin`.
 */
const SECURITY_HEADERS = {
  'Access-Control-Allow-Origin': '*',
  'Access-Control-Expose-Headers':
    'Allow, ETag, Retry-After, X-Request-Id, X-Svc-Tree-Size, X-Svc-Snapshot-Generation, X-Svc-Snapshot-Issued-At',
  ...securityHeaders('cross-origin'),
};

/** The security headers as alternating names and values, precomputed for the hot path. */
const PLAIN = Object.entries(SECURITY_HEADERS).flat();

export interface Answer {
  status: number;
  type: string;
  cache: string;
  /** A string is sent as Latin-1. */
  body: Uint8Array | string;
  /** Whether the answer holds no verdict, so that a cache may serve it after the snapshot has expired. */
  outlivesSnapshot?: boolean;
  /** The entity tag without quotes. */
  etag?: string;
  /** The Content-Security-Policy of a page. */
  policy?: string;
  headers?: Record<string, string>;
}

/**
 * Sends an answer with the headers of its snapshot, or 304 when If-None-Match matches. If the request may contain a
 * share token, or the snapshot of a verdict soon expires, the answer has no ETag, and no cache may store it.
 */
export function send(
  { ctx, req, res, requestId, secret = false }: Exchange,
  snapshot: Snapshot | null,
  answer: Answer,
): void {
  const isSecret = secret || mayHoldToken(req.url ?? '');
  const isLate =
    snapshot !== null &&
    answer.cache === CACHE_VERDICT &&
    answer.outlivesSnapshot !== true &&
    snapshot.validUntil - ctx.clock.now() < UNCACHED_MS;
  const policy = answer.policy && { ...SECURITY_HEADERS, 'Content-Security-Policy': answer.policy };
  const headers = policy ? Object.entries(policy).flat() : [...PLAIN];
  const caching = isSecret ? CACHE_PRIVATE : isLate ? CACHE_NEVER : answer.cache;
  headers.push('Cache-Control', caching, 'X-Request-Id', requestId);
  if (snapshot !== null) {
    headers.push(
      'X-Svc-Tree-Size',
      String(snapshot.log.size),
      'X-Svc-Snapshot-Generation',
      String(snapshot.generation),
      'X-Svc-Snapshot-Issued-At',
      snapshot.entry.time,
    );
  }
  if (answer.headers !== undefined) headers.push(...Object.entries(answer.headers).flat());
  // No ETag on POST: the response is not a representation of the URL (RFC 9110 §8.8.3).
  if (answer.etag !== undefined && caching === answer.cache && req.method !== 'POST') {
    // Includes generation and time: on a 304, caches such as nginx keep the stored snapshot headers, so the tag of
    // another snapshot must not match. A log that continues a retired log may repeat its generations.
    const own = snapshot === null ? '' : `${snapshot.generation}-${snapshot.issuedAt}-`;
    const etag = `"${own}${answer.etag}"`;
    headers.push('ETag', etag);
    if (answer.status === 200 && has(req.headers['if-none-match'], etag)) {
      res.writeHead(304, headers);
      res.end();
      return;
    }
  }
  if (answer.status !== 204) {
    headers.push('Content-Type', answer.type, 'Content-Length', String(answer.body.length));
  }
  const isRead = req.method === 'GET' || req.method === 'HEAD' || !leavesLongBody(req);
  if (!isRead) headers.push('Connection', 'close');
  res.writeHead(answer.status, headers);
  if (!isRead) endDiscarding(req, res, Buffer.from(answer.body));
  else if (req.method === 'HEAD') res.end();
  else {
    // Sends one buffer. `end` with a body would also send an empty buffer, which costs a tenth of a lookup.
    res.cork();
    res.write(answer.body, 'latin1');
    res.uncork();
    res.end();
  }
}

export function sendProblem(exchange: Exchange, problem: Problem): void {
  send(exchange, null, {
    status: problem.status,
    type: 'application/problem+json',
    cache: CACHE_NEVER,
    body: Buffer.from(JSON.stringify(problem.document())),
    ...(problem.options.headers && { headers: problem.options.headers }),
  });
}

/** Sends a thrown problem. Logs any other error and reports the snapshot as unreadable. */
export function sendFailure(exchange: Exchange, error: unknown): void {
  const { res } = exchange;
  const problem = problemOf(exchange, error);
  if (res.headersSent) res.destroy();
  else sendProblem(exchange, problem);
}

export function problemOf({ ctx, requestId, route }: Exchange, error: unknown): Problem {
  if (error instanceof Problem) return error;
  const problem = unreadable(error);
  // Never log the URL: it may contain a share token in any encoding.
  const fields = { err: error, request_id: requestId, route };
  logRarely(ctx.log, 'error', fields, problem.message);
  return problem;
}

/** The response to a request that failed before routing. */
export function unreadProblem(reason: UnreadReason): UnreadAnswer {
  const problem = new Problem(reason, UNREAD_DETAILS[reason]);
  return unreadAnswer(problem.document(), SECURITY_HEADERS);
}

/** Serves a constant text that is rendered on the first request. */
export function serveFixed(type: string, text: () => string, policy?: string) {
  let made: { body: Uint8Array; etag: string } | undefined;
  return (exchange: Exchange): void => {
    if (made === undefined) {
      const body = utf8(text());
      made = { body, etag: hashTag(body) };
    }
    const answer = { status: 200, type, cache: CACHE_FIXED, ...made };
    send(exchange, null, policy === undefined ? answer : { ...answer, policy });
  };
}

export function hashTag(body: Uint8Array | string): string {
  return hashHex(nativeSha256, body).slice(0, 32);
}

/** Limit of rounds of percent-decoding. A repeatedly encoded percent sign (%2525…) takes only one round. */
const MAX_ROUNDS = 5;

/**
 * Whether a text may contain a share token, in upper or lower case and any encoding. A token is a
 * bearer secret, so the response must not enter a shared cache.
 */
export function mayHoldToken(text: string): boolean {
  let spelling = text;
  for (let round = 1; ; round++) {
    if (/share_/i.test(spelling)) return true;
    if (round === MAX_ROUNDS || !spelling.includes('%')) return false;
    // Decodes single bytes, which is enough because tokens are ASCII; leaves invalid encodings unchanged.
    spelling = spelling
      .replace(/%(?:25)+/g, '%')
      .replace(/%([0-9a-f]{2})/gi, (_all, hex: string) => String.fromCharCode(parseInt(hex, 16)));
  }
}

/** RFC 9110 §13.1.2 requires weak comparison. */
function has(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false;
  if (ifNoneMatch.trim() === '*') return true;
  return ifNoneMatch.split(',').some((tag) => tag.trim().replace(/^W\//, '') === etag);
}
