import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import type { HttpServer } from '#runtime/http/server';

export interface Reply {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
  /** Of a JSON answer; else `{}`. */
  body: unknown;
}

export interface Call {
  method?: string;
  headers?: Record<string, string>;
  body?: string | Buffer;
}

/** A request exactly as written: no normalization of the path, no headers of its own. */
export function callAt(
  server: Pick<HttpServer, 'url'>,
  path: string,
  { method = 'GET', headers = {}, body }: Call = {},
): Promise<Reply> {
  const { hostname, port } = new URL(server.url);
  return new Promise((resolve, reject) => {
    const req = httpRequest({ hostname, port, path, method, headers, agent: false }, (res) => {
      const chunks: Buffer[] = [];
      res.on('data', (chunk: Buffer) => chunks.push(chunk));
      res.on('end', () => {
        const text = Buffer.concat(chunks).toString('utf8');
        const isJson = String(res.headers['content-type']).includes('json') && text !== '';
        const parsed: unknown = isJson ? JSON.parse(text) : {};
        resolve({ status: res.statusCode ?? 0, headers: res.headers, text, body: parsed });
      });
      res.on('error', reject);
    });
    req.on('error', reject);
    req.end(body);
  });
}

/** `POST /api/public/verify` with the given members beside the schema version. */
export function postLookup(
  server: Pick<HttpServer, 'url'>,
  members: Record<string, unknown>,
  headers: Record<string, string> = {},
): Promise<Reply> {
  return callAt(server, '/api/public/verify', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify({
      schema_version: 'svc.public_verification.lookup_request/1.0',
      ...members,
    }),
  });
}

/** All of an answer but when it was given. */
export function sameness({ status, headers, text }: Reply): unknown {
  return { status, text, headers: { ...headers, date: '' } };
}
