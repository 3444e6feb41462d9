import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Request, RequestHandler, Response } from 'express';
import { utf8 } from '#protocol/bytes';
import { canonicalBytes, type JsonValue } from '#protocol/json';

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
