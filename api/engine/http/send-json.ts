import { createHash } from 'node:crypto';
import type { Request, Response } from 'express';

export function sendJson(res: Response, status: number, body: Uint8Array): void {
  send(res, status, 'application/json', body);
}

/** Sends a response with a strong ETag, or 304. `private`: shared caches must not store it. */
export function sendRevalidatable(
  req: Request,
  res: Response,
  contentType: string,
  body: Uint8Array,
): void {
  const digest = createHash('sha256').update(body).digest('base64url').slice(0, 27);
  res.setHeader('ETag', `"${digest}"`);
  res.setHeader('Cache-Control', 'private, no-cache');
  res.vary('Accept');
  res.statusCode = 200;
  if (req.fresh) {
    res.statusCode = 304;
    res.end();
    return;
  }
  send(res, 200, contentType, body);
}

function send(res: Response, status: number, contentType: string, body: Uint8Array): void {
  res.statusCode = status;
  res.setHeader('Content-Type', contentType);
  res.setHeader('Content-Length', body.length);
  res.end(body);
}
