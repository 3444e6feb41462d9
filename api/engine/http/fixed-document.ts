import { createHash } from 'node:crypto';
import type { Request, RequestHandler, Response } from 'express';

export interface FixedDocument {
  contentType: string;
  bytes: Uint8Array;
  headers?: Record<string, string>;
}

/** Serves a public document that is constant for the life of the process, with an ETag. */
export function serveFixed({ contentType, bytes, headers = {} }: FixedDocument): RequestHandler {
  const digest = createHash('sha256').update(bytes).digest('base64url').slice(0, 27);
  return (req: Request, res: Response) => {
    res.setHeader('ETag', `"${digest}"`);
    res.setHeader('Cache-Control', 'public, no-cache');
    for (const [name, value] of Object.entries(headers)) res.setHeader(name, value);
    res.statusCode = 200;
    if (req.fresh) {
      res.statusCode = 304;
      res.end();
      return;
    }
    res.setHeader('Content-Type', contentType);
    res.setHeader('Content-Length', bytes.length);
    res.end(bytes);
  };
}
