import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import { unreadProblem } from '#api/engine/http/problem';
import { unreadProblem as publicUnreadProblem } from '#api/public/http/answer';
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
    ['a space in a header name', 'GET / HTTP/1.1\r\nA B: c\r\n\r\n', 400, 'malformed_request'],
    [
      'two lengths',
      `${HEAD}Content-Length: 1\r\nContent-Length: 2\r\n\r\nx`,
      400,
      'malformed_request',
    ],
    [
      'a length and chunks',
      `${HEAD}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
      400,
      'malformed_request',
    ],
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

  it('gets 408 when the body stalls', async () => {
    const server = await serve((req) => void readJsonBody(req, 1_000).catch(() => undefined));
    const answer = await exchange(server, `${HEAD}Content-Length: 100\r\n\r\n{`);
    expect(problemIn(answer)).toEqual({ status: 408, code: 'request_timeout' });
  });

  it('gets 400 when the body ends early', async () => {
    const server = await serve((req) => void readJsonBody(req, 1_000).catch(() => undefined));
    const bytes = `${HEAD}Content-Length: 100\r\n\r\n{`;
    const answer = await exchange(server, bytes, { thenEnd: true });
    expect(problemIn(answer)).toEqual({ status: 400, code: 'incomplete_body' });
  });

  it('gets 400 for an invalid chunk', async () => {
    const server = await serve((req) => void readJsonBody(req, 1_000).catch(() => undefined));
    const answer = await exchange(server, `${HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\n`);
    expect(problemIn(answer)).toEqual({ status: 400, code: 'malformed_request' });
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

  it('does not include an unknown expectation', async () => {
    const bytes = 'GET / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nConnection: close\r\n\r\n';
    expect(await exchange(await serve(), bytes)).toMatch(/^HTTP\/1.1 200 OK[^]*answered/);
  });
});

describe('idle connection', () => {
  it('is closed', async () => {
    // Excludes the other limits on a busy machine.
    const server = await serve(() => undefined, {
      idleMs: 200,
      headersMs: 20_000,
      requestMs: 20_000,
    });
    const began = performance.now();
    expect(await exchange(server, 'GET / HTTP/1.1\r\nHost: h\r\n\r\n')).toBe('');
    expect(performance.now() - began).toBeLessThan(2_000);
  });
});

describe('unreadable request to the public API', () => {
  it.each([
    ['malformed_request', 400],
    ['incomplete_body', 400],
    ['request_timeout', 408],
    ['headers_too_large', 431],
  ] as const)('gets the problem %s', (code, status) => {
    const { headers, body } = publicUnreadProblem(code);
    expect(headers['Content-Type']).toBe('application/problem+json');
    const problem = { type: `urn:svc:problem:${code}`, status, code };
    expect(JSON.parse(Buffer.from(body).toString())).toMatchObject(problem);
  });
});
