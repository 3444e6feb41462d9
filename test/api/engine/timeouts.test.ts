import { connect, type Socket } from 'node:net';
import { once } from 'node:events';
import { afterEach, describe, expect, it } from 'vitest';
import { unreadProblem } from '#api/engine/http/problem';
import { unreadProblem as publicUnreadProblem } from '#api/public/http/unread-request';
import { problemSchema } from '#protocol/schemas/problem';
import { listen, type HttpServer, type ListenOptions } from '#runtime/http/server';
import { readJsonBody } from '#runtime/http/json-body';

const servers: HttpServer[] = [];
const sockets: Socket[] = [];

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) await server.close(0);
});

async function serve(limits: ListenOptions['limits'] = {}): Promise<HttpServer> {
  const server = await listen(
    (req, res) => {
      if (req.url === '/half') {
        res.writeHead(200, { 'Content-Length': 100 });
        res.write('half');
        return;
      }
      if (req.url === '/slow') return;
      readJsonBody(req, 1_000).then(
        () => res.end('read'),
        () => res.destroy(),
      );
    },
    {
      host: '127.0.0.1',
      port: 0,
      answerUnread: unreadProblem,
      limits: { headersMs: 200, requestMs: 300, ...limits },
    },
  );
  servers.push(server);
  return server;
}

/** Everything that comes back until the server hangs up. */
async function exchange(server: HttpServer, ...sent: string[]): Promise<string> {
  const socket = connect(server.port, '127.0.0.1');
  sockets.push(socket);
  let received = '';
  socket.on('data', (chunk) => (received += chunk.toString()));
  socket.on('error', () => undefined);
  for (const text of sent) socket.write(text);
  await once(socket, 'close');
  return received;
}

function expectProblem(received: string, status: number, code: string): void {
  const [head = '', body = ''] = received.split('\r\n\r\n');
  expect(head).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
  expect(head).toContain('Content-Type: application/problem+json');
  expect(head).toContain('Connection: close');
  const problem = problemSchema.parse(JSON.parse(body));
  expect(problem).toMatchObject({ status, code });
  expect(head).toContain(`X-Request-Id: ${problem.request_id}`);
}

const POST = 'POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n';

describe('incomplete request', () => {
  it('gets 408 when its headers are slow', async () => {
    const server = await serve();
    expectProblem(
      await exchange(server, 'GET / HTTP/1.1\r\nHost: h\r\nX-'),
      408,
      'request_timeout',
    );
  });

  it('gets 408 when its body is slow', async () => {
    const server = await serve();
    const received = await exchange(server, `${POST}Content-Length: 10\r\n\r\n`, '{"a":');
    expectProblem(received, 408, 'request_timeout');
  });

  it('gets 400 when it is not HTTP', async () => {
    expectProblem(
      await exchange(await serve(), 'EHLO example.org\r\n\r\n'),
      400,
      'malformed_request',
    );
  });

  it('gets 400 when its body has two lengths', async () => {
    const lengths = 'Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}';
    expectProblem(await exchange(await serve(), POST + lengths), 400, 'malformed_request');
  });

  it('gets 431 when its headers are too long', async () => {
    const long = `GET / HTTP/1.1\r\nHost: h\r\nX-Long: ${'x'.repeat(20_000)}\r\n\r\n`;
    expectProblem(await exchange(await serve(), long), 431, 'headers_too_large');
  });

  it('gets no second response within a partial one', async () => {
    const socket = connect((await serve()).port, '127.0.0.1');
    sockets.push(socket);
    let received = '';
    socket.on('data', (chunk) => (received += chunk.toString()));
    socket.on('error', () => undefined);
    socket.write('GET /half HTTP/1.1\r\nHost: h\r\n\r\n');
    await expect.poll(() => received).toMatch(/half$/);
    socket.write('nonsense\r\n\r\n');
    await once(socket, 'close');
    expect(received.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(received).toMatch(/half$/);
  });
});

describe('public API', () => {
  it.each([
    ['malformed_request', 400],
    ['incomplete_body', 400],
    ['request_timeout', 408],
    ['headers_too_large', 431],
  ] as const)('says the same of %s', (code, status) => {
    const { headers, body } = publicUnreadProblem(code);
    expect(headers['Content-Type']).toBe('application/problem+json');
    expect(JSON.parse(Buffer.from(body).toString())).toMatchObject({
      type: `urn:svc:problem:${code}`,
      status,
      code,
    });
  });
});

describe('idle connection', () => {
  it('is closed', async () => {
    // Excludes other delays of a busy machine.
    const server = await serve({ idleMs: 200, headersMs: 20_000, requestMs: 20_000 });
    const began = performance.now();
    expect(await exchange(server, 'GET /slow HTTP/1.1\r\nHost: h\r\n\r\n')).toBe('');
    expect(performance.now() - began).toBeLessThan(2_000);
  });
});
