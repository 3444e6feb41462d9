import { request as httpRequest, type Agent, type IncomingHttpHeaders } from 'node:http';

export interface Reply {
  status: number;
  headers: IncomingHttpHeaders;
  bytes: Buffer;
  /** The body, where it is JSON. */
  json: Record<string, unknown>;
}

export interface Call {
  method?: string;
  path?: string;
  headers?: Record<string, string | string[]>;
  body?: string | Uint8Array;
  agent?: Agent;
  signal?: AbortSignal;
}

/** A request exactly as described: nothing is added to it. */
export function send(url: string, call: Call): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      new URL(call.path ?? '/v1/intents/execute', url),
      {
        method: call.method ?? 'POST',
        headers: call.headers ?? {},
        agent: call.agent ?? false,
        ...(call.signal && { signal: call.signal }),
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => {
          const bytes = Buffer.concat(chunks);
          const isJson = /[/+]json/.test(response.headers['content-type'] ?? '');
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            bytes,
            json:
              isJson && bytes.length > 0
                ? (JSON.parse(bytes.toString()) as Record<string, unknown>)
                : {},
          });
        });
      },
    );
    request.on('error', reject);
    request.end(call.body);
  });
}
