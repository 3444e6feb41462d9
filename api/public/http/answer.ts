import type { IncomingMessage, ServerResponse } from 'node:http';
import { securityHeaders } from '../../http/security-headers.js';
import { endDiscarding, leavesLongBody } from '../../http/unread-request.js';
import type { PublicContext } from '../context.js';
import { Problem } from './problem.js';
import { mayHoldToken } from './secrets.js';
import type { Snapshot } from '../snapshot/snapshot.js';

/** A verdict can change with the next snapshot. */
export const CACHE_VERDICT = 'public, max-age=1';
export const CACHE_IMMUTABLE = 'public, max-age=31536000, immutable';
export const CACHE_NEVER = 'no-store';
/** For responses to a share token. */
export const CACHE_PRIVATE = 'private, no-store';

export const JSON_TYPE = 'application/json; charset=utf-8';

/** CORS for every origin: no response depends on the client, so none varies with `Origin`. */
export const READABLE_ANYWHERE = {
  'Access-Control-Allow-Origin': '*',
  'Access-Control-Expose-Headers':
    'Allow, ETag, Retry-After, X-Svc-Tree-Size, X-Svc-Snapshot-Generation, X-Svc-Snapshot-Issued-At',
};

export const SECURITY_HEADERS = { ...READABLE_ANYWHERE, ...securityHeaders('cross-origin') };

/** Precomputed for the hot path. */
const PLAIN = Object.entries(SECURITY_HEADERS).flat();

function withPolicy(policy: string): string[] {
  return Object.entries({ ...SECURITY_HEADERS, 'Content-Security-Policy': policy }).flat();
}

export interface Answer {
  status: number;
  type: string;
  cache: string;
  /** A string is sent as Latin-1. */
  body: Uint8Array | string;
  /** Without quotes. */
  etag?: string;
  /** The Content-Security-Policy of a page. */
  policy?: string;
  headers?: Record<string, string>;
}

/** Sends an answer with the headers of its snapshot, or 304 when If-None-Match matches. */
export function send(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  snapshot: Snapshot | null,
  answer: Answer,
): void {
  const headers = [...(answer.policy === undefined ? PLAIN : withPolicy(answer.policy))];
  headers.push('Cache-Control', answer.cache);
  if (snapshot !== null) {
    const { manifest } = snapshot.opened;
    headers.push(
      'X-Svc-Tree-Size',
      String(manifest.tree_size),
      'X-Svc-Snapshot-Generation',
      String(manifest.generation),
      'X-Svc-Snapshot-Issued-At',
      manifest.issued_at,
    );
  }
  if (answer.headers !== undefined) headers.push(...Object.entries(answer.headers).flat());
  // No ETag on POST: the response is not a representation of the URL (RFC 9110 §8.8.3).
  if (answer.etag !== undefined && req.method !== 'POST') {
    const etag = tagOf(snapshot, answer.etag);
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
  else if (typeof answer.body === 'string') res.end(answer.body, 'latin1');
  else res.end(answer.body);
}

/**
 * Includes the generation: on a 304, caches such as nginx keep the stored snapshot headers, so the tag of
 * another snapshot must not match.
 */
function tagOf(snapshot: Snapshot | null, body: string): string {
  return snapshot === null ? `"${body}"` : `"${snapshot.opened.manifest.generation}-${body}"`;
}

/** @param secret whether the request may contain a share token outside its URL */
export function sendProblem(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  problem: Problem,
  secret = false,
): void {
  send(ctx, req, res, null, {
    status: problem.status,
    type: 'application/problem+json',
    cache: secret || mayHoldToken(req.url ?? '') ? CACHE_PRIVATE : CACHE_NEVER,
    body: Buffer.from(JSON.stringify(problem.document())),
    ...(problem.options.headers && { headers: problem.options.headers }),
  });
}

/**
 * Sends a thrown problem. Logs any other error and sends the problem that `otherwise` makes of it.
 *
 * @param template the documented path; null where Express matched the route
 */
export function sendFailure(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  error: unknown,
  otherwise: (ctx: PublicContext, cause: unknown) => Problem,
  template: string | null,
  secret = false,
): void {
  if (error instanceof Problem) {
    sendProblem(ctx, req, res, error, secret);
    return;
  }
  const problem = otherwise(ctx, error);
  // Never log the URL: it may contain a share token in any encoding.
  const { locals } = res as { locals?: Partial<Record<'route', string>> };
  const route = template ?? locals?.route ?? null;
  ctx.log.error({ err: error, route }, problem.message);
  if (res.headersSent) res.destroy();
  else sendProblem(ctx, req, res, problem, secret);
}

/** RFC 9110 §13.1.2 requires weak comparison. */
function has(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false;
  if (ifNoneMatch.trim() === '*') return true;
  return ifNoneMatch.split(',').some((tag) => tag.trim().replace(/^W\//, '') === etag);
}
