import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import { unreadProblem } from '#api/engine/http/problem';
import { problemSchema } from '#protocol/schemas/problem';
import { listen, type HttpServer } from '#runtime/http/server';
import { RawClient } from '../../fixtures/raw-client.js';

const running: HttpServer[] = [];
afterEach(async () => {
  for (const server of running.splice(0)) await server.close(0);
});

async function clientOf(
  handler: (req: IncomingMessage, res: ServerResponse) => void,
): Promise<RawClient> {
  const options = { host: '127.0.0.1', port: 0, answerUnread: unreadProblem };
  const server = await listen(handler, options);
  running.push(server);
  return RawClient.connect(server);
}

const GET = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';
const NO_REQUEST = 'nonsense\r\n\r\n';

describe('unreadable request', () => {
  it('gets a problem with its request id and the standard response headers', async () => {
    const client = await clientOf((_req, res) => res.end('answered'));
    client.say(NO_REQUEST);
    const [head = '', body = ''] = (await client.end()).split('\r\n\r\n');
    const problem = problemSchema.parse(JSON.parse(body));
    expect(problem).toMatchObject({ status: 400, code: 'malformed_request' });
    expect(problem.type).toBe('urn:svc:problem:malformed_request');
    expect(head.split('\r\n')).toEqual(
      expect.arrayContaining([
        'HTTP/1.1 400 Bad Request',
        'Content-Type: application/problem+json',
        'Connection: close',
        "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'",
        'Cross-Origin-Resource-Policy: same-origin',
        `X-Request-Id: ${String(problem.request_id)}`,
      ]),
    );
  });

  it('does not replace the pending response to the previous request', async () => {
    let answer: (() => void) | null = null;
    const client = await clientOf((_req, res) => {
      answer = () => res.end('admitted');
    });
    client.say(GET + NO_REQUEST);
    await expect.poll(() => answer).not.toBeNull();
    await new Promise((resolve) => setTimeout(resolve, 50));
    answer!();
    expect(await client.end()).toMatch(/^HTTP\/1.1 200 OK[^]*admitted/);
  });

  it('adds no second response inside a partly sent response', async () => {
    const client = await clientOf((_req, res) => {
      res.writeHead(200, { 'Content-Length': 100 });
      res.write('half');
    });
    client.say(GET);
    await expect.poll(() => client.received).toMatch(/half$/);
    client.say(NO_REQUEST);
    const received = await client.end();
    expect(received.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(received).toMatch(/half$/);
  });

  it('does not suppress a response that was written in the same turn of the event loop', async () => {
    const client = await clientOf((_req, res) => {
      res.writeHead(404, { 'Content-Length': 6 });
      // Calls no `end`, like a response that waits for the rest of the request body.
      res.write('absent');
    });
    const extension = 'x'.repeat(17_000);
    client.say(`POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;${extension}`);
    expect(await client.end()).toMatch(/^HTTP\/1.1 404 Not Found[^]*absent$/);
  });
});
