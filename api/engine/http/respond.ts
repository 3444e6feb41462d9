import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { NextFunction, Request, RequestHandler, Response } from 'express';
import { utf8 } from '#protocol/bytes';
import { canonicalBytes, type JsonValue } from '#protocol/json';
import { requestIdFrom } from '#runtime/http/request-ids';
import type { Tracing } from '#runtime/ops/tracing';
import { securityHeaders } from '../../http/responses.js';
import type { EngineContext } from '../context.js';

/** `same-origin`: tenants' data must not load into pages of other origins. */
export const SECURITY_HEADERS = securityHeaders('same-origin');
const SECURITY_HEADER_NAMES = Object.keys(SECURITY_HEADERS) as (keyof typeof SECURITY_HEADERS)[];

interface LogFields {
  /** The documented path; null for an unknown path. Never the raw path, which may hold a share token. */
  route: string | null;
  key_id: string;
  tenant_id: string;
  proof_id: string;
  batch_id: string;
  revocation_id: string;
  /** `tenant`: the request exceeded a limit of its own tenant. */
  limit: 'tenant';
}

type Locals = Partial<LogFields> & { request_id: string };

function localsOf(res: Response): Locals {
  return res.locals as Locals;
}

export function requestIdOf(res: Response): string {
  return localsOf(res).request_id;
}

const traces = new WeakMap<Response, ReturnType<Tracing['begin']>>();

/** The trace context of a sampled request; null otherwise. */
export const traceparentOf = (res: Response): string | null => traces.get(res)?.traceparent ?? null;

/** Adds fields to the request's access log line. Never secrets, never payload. */
export function addLogFields(res: Response, fields: Partial<LogFields>): void {
  Object.assign(localsOf(res), fields);
}

/** First middleware: request id, common headers, metrics and the access log line. */
export function requestContext({
  log,
  metrics,
  tracing,
}: Pick<EngineContext, 'log' | 'metrics' | 'tracing'>): RequestHandler {
  return (req: Request, res: Response, next: NextFunction) => {
    const started = performance.now();
    const locals = localsOf(res);
    locals.request_id = requestIdFrom(req.headers['x-request-id']);
    locals.route = null;
    const span = tracing?.begin(req.get('traceparent'));
    if (span !== undefined) traces.set(res, span);
    res.setHeader('X-Request-Id', locals.request_id);
    for (const name of SECURITY_HEADER_NAMES) res.setHeader(name, SECURITY_HEADERS[name]);
    res.setHeader('Cache-Control', 'no-store');
    res.once('close', () => {
      const status = res.headersSent ? res.statusCode : null;
      const ms = performance.now() - started;
      metrics?.answered(locals.route ?? null, req.method, status, locals.limit ?? '', ms);
      span?.end(`${req.method} ${locals.route ?? 'unknown'}`, {
        'http.request.method': req.method,
        'http.route': locals.route ?? '',
        'http.response.status_code': status ?? 499,
        ...(locals.proof_id !== undefined && { proof_id: locals.proof_id }),
        ...(locals.batch_id !== undefined && { batch_id: locals.batch_id }),
        request_id: locals.request_id,
      });
      const outcome = status === null ? { disconnected: true } : { status };
      log.info(
        { ...locals, method: req.method, ...outcome, ms: Math.round(ms * 10) / 10 },
        'request',
      );
    });
    next();
  };
}

export function sendJson(res: Response, status: number, document: JsonValue): void {
  sendBytes(res, status, 'application/json', canonicalBytes(document));
}

export function sendBytes(res: Response, status: number, type: string, body: Uint8Array): void {
  res.statusCode = status;
  res.setHeader('Content-Type', type);
  res.setHeader('Content-Length', body.length);
  res.end(body);
}

/** Sends a response with a strong ETag, or 304. `private`: shared caches must not store it. */
export function sendRevalidatable(
  req: Request,
  res: Response,
  type: string,
  body: Uint8Array,
): void {
  res.vary('Accept');
  sendWithETag(req, res, 'private, no-cache', type, body, etagOf(body));
}

/**
 * Serves a text that never changes; renders it on the first request.
 *
 * @param policy the Content-Security-Policy of a page
 */
export function serveFixed(type: string, text: () => string, policy?: string): RequestHandler {
  let made: { body: Uint8Array; etag: string } | undefined;
  return (req, res) => {
    if (made === undefined) {
      const body = utf8(text());
      made = { body, etag: etagOf(body) };
    }
    if (policy !== undefined) res.setHeader('Content-Security-Policy', policy);
    sendWithETag(req, res, 'public, no-cache', type, made.body, made.etag);
  };
}

function sendWithETag(
  req: Request,
  res: Response,
  caching: string,
  type: string,
  body: Uint8Array,
  etag: string,
): void {
  res.setHeader('ETag', etag);
  res.setHeader('Cache-Control', caching);
  if (req.fresh) res.status(304).end();
  else sendBytes(res, 200, type, body);
}

function etagOf(body: Uint8Array): string {
  return `"${createHash('sha256').update(body).digest('base64url').slice(0, 27)}"`;
}

const COMMA = utf8(',');

/** A JSON array as chunks of bytes; each item is already encoded. */
export function arrayParts(items: readonly Uint8Array[]): Uint8Array[] {
  const parts = items.flatMap((item, at) => (at === 0 ? [item] : [COMMA, item]));
  return [utf8('['), ...parts, utf8(']')];
}

const NEWLINE = utf8('\n');

/** Streams each part as a line, with backpressure. Stops pulling when the client disconnects. */
export async function sendLines(
  res: ServerResponse,
  parts: AsyncIterable<readonly Uint8Array[]>,
): Promise<void> {
  const gone = clientGone(res);
  res.statusCode = 200;
  for await (const part of parts) {
    if (gone.aborted) return;
    const lines = Buffer.concat(part.flatMap((line) => [line, NEWLINE]));
    if (!res.write(lines)) await once(res, 'drain', { signal: gone }).catch(() => undefined);
  }
  res.end();
}

/** A signal that aborts when the client disconnects before the response is complete. */
export function clientGone(res: ServerResponse): AbortSignal {
  const gone = new AbortController();
  if (res.closed && !res.writableFinished) gone.abort();
  res.once('close', () => {
    if (!res.writableFinished) gone.abort();
  });
  return gone.signal;
}
