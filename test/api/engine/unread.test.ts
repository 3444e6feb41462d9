import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import { unreadProblem } from '#api/engine/http/problem';
import { problemSchema } from '#protocol/schemas/problem';
import { listen, type HttpServer, type ListenOptions } from '#runtime/http/server';
import { readJsonBody } from '#runtime/http/json-body';

const running: HttpServer[] = [];
afterEach(async () => {
  for (const server of running.splice(0)) await server.close(0);
});

async function serve(
  handler: (req: IncomingMessage, res: ServerResponse) => void = (_req, res) => res.end('answered'),
  limits: ListenOptions['limits'] = { headersMs: 150, requestMs: 300 },
): Promise<HttpServer> {
  const server = await listen(handler, {
    host: '127.0.0.1',
    port: 0,
    limits,
    answerUnread: unreadProblem,
  });
  running.push(server);
  return server;
}

/** Everything that comes back for these bytes, until the connection closes. */
function exchange(
  { port }: HttpServer,
  bytes: string | Buffer,
  options: { thenEnd?: boolean } = {},
): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket: Socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    let text = '';
    socket.setEncoding('utf8');
    socket.on('data', (piece: string) => (text += piece));
    socket.on('error', reject);
    socket.on('end', () => {
      socket.end();
      resolve(text);
    });
    socket.write(bytes);
    if (options.thenEnd === true) socket.end();
  });
}

function problemIn(answer: string): { status: number; code: string } {
  const [head = '', body = ''] = answer.split('\r\n\r\n');
  expect(head).toMatch(/^Content-Type: application\/problem\+json$/im);
  expect(head).toMatch(/^Connection: close$/im);
  expect(head).toMatch(/^Content-Security-Policy: default-src 'none'; frame-ancestors 'none'$/im);
  expect(head).toMatch(/^Cross-Origin-Resource-Policy: same-origin$/im);
  const problem = problemSchema.parse(JSON.parse(body));
  expect(head).toContain(`X-Request-Id: ${problem.request_id}`);
  expect(head).toMatch(new RegExp(`^HTTP/1.1 ${problem.status} `));
  expect(problem.type).toBe(`urn:svc:problem:${problem.code}`);
  return { status: problem.status, code: problem.code };
}

const HEAD = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';

describe('unreadable request', () => {
  it.each([
    ['bytes that are not HTTP', 'hello\r\n\r\n', 400, 'malformed_request'],
    [
      'headers of 64 kB',
      `GET / HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(65_536)}\r\n\r\n`,
      431,
      'headers_too_large',
    ],
    ['headers that do not end', 'GET / HTTP/1.1\r\nHost: x\r\nA: ', 408, 'request_timeout'],
  ])('of %s gets a problem', async (_, bytes, status, code) => {
    expect(problemIn(await exchange(await serve(), bytes))).toEqual({ status, code });
  });

  it('gets 400 when the body ends early', async () => {
    const server = await serve((req) => void readJsonBody(req, 1_000).catch(() => undefined));
    const bytes = `${HEAD}Content-Length: 100\r\n\r\n{`;
    const answer = await exchange(server, bytes, { thenEnd: true });
    expect(problemIn(answer)).toEqual({ status: 400, code: 'incomplete_body' });
  });

  it('does not replace the response to the previous request', async () => {
    let answer: (() => void) | null = null;
    const server = await serve((_req, res) => {
      answer = () => res.end('admitted');
    });
    const reply = exchange(server, 'GET / HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n');
    await expect.poll(() => answer).not.toBeNull();
    await new Promise((resolve) => setTimeout(resolve, 50));
    answer!();
    expect(await reply).toMatch(/^HTTP\/1.1 200 OK[^]*admitted/);
  });

  it('gets no second response within a partial one', async () => {
    const { port } = await serve((_req, res) => {
      res.writeHead(200, { 'Content-Length': 100 });
      res.write('half');
    });
    const socket = connect(port, '127.0.0.1');
    let received = '';
    socket.on('data', (chunk) => (received += chunk.toString()));
    socket.on('error', () => undefined);
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    await expect.poll(() => received).toMatch(/half$/);
    socket.write('nonsense\r\n\r\n');
    await once(socket, 'close');
    expect(received.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(received).toMatch(/half$/);
  });
});
