import { EventEmitter } from 'node:events';
import { type IncomingMessage, Server, type RequestListener, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { unreadProblem } from '#api/engine/http/problem';
import { boundConnections, HTTP_LIMITS, type HttpLimits } from '#runtime/http/connections';
import { listen, type HttpServer } from '#runtime/http/server';
import { readJsonBody, streamBody } from '#runtime/http/json-body';
import { RawClient, statusesOf } from '../fixtures/raw-client.js';

const servers: HttpServer[] = [];
const clients: RawClient[] = [];

afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy();
  for (const server of servers.splice(0)) await server.close(0);
});

const BIG = Buffer.alloc(256 * 1024, 'x');

let posts = 0;

const handler: RequestListener = (req, res) => {
  if (req.url === '/big') res.end(BIG);
  else if (req.method === 'GET') res.end('served');
  else {
    posts += 1;
    readJsonBody(req, 1024 * 1024).then(
      () => res.end('read'),
      () => res.destroy(),
    );
  }
};

async function serve(
  limits: Partial<HttpLimits>,
  served: RequestListener = handler,
): Promise<HttpServer> {
  const server = await listen(served, {
    host: '127.0.0.1',
    port: 0,
    answerUnread: unreadProblem,
    limits,
  });
  servers.push(server);
  return server;
}

async function client(server: HttpServer, from?: string): Promise<RawClient> {
  const one = await RawClient.connect(server, from);
  clients.push(one);
  return one;
}

/** Limits concurrent connects to the backlog, because the kernel delays others by seconds. */
async function many(server: HttpServer, count: number, from?: string): Promise<RawClient[]> {
  const made: RawClient[] = [];
  while (made.length < count) {
    const some = Math.min(100, count - made.length);
    made.push(...(await Promise.all(Array.from({ length: some }, () => client(server, from)))));
  }
  return made;
}

const GET = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';
const POST = 'POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';

/** Expects that a well-behaved client is served. */
async function expectServed(server: HttpServer): Promise<void> {
  const began = performance.now();
  const response = await fetch(server.url, { headers: { Connection: 'close' } });
  expect(await response.text()).toBe('served');
  expect(performance.now() - began).toBeLessThan(10_000);
}

describe('slow client', () => {
  it.each([
    ['headers', `GET / HTTP/1.1\r\nHost: x\r\nA: `],
    ['a body', `${POST}Content-Length: 10000\r\n\r\n`],
  ])('gets 408 for slow %s, while other clients are served', async (_, begin) => {
    const server = await serve({ headersMs: 300, requestMs: 500 });
    const slow = await many(server, 100);
    for (const one of slow) {
      one.say(begin);
      one.dribble('x'.repeat(10_000), 50);
    }
    await sleep(100);
    await expectServed(server);
    for (const one of slow) expect(statusesOf(await one.end())).toEqual([408]);
  });

  it('is disconnected when idle', async () => {
    const server = await serve({ keepAliveMs: 200 });
    const idle = await client(server);
    idle.say(GET);
    expect(statusesOf(await idle.end())).toEqual([200]);
  });

  it('is disconnected when it does not read its response, and uses only socket buffers until then', async () => {
    const server = await serve({ idleMs: 500 });
    let taken = 0;
    server.server.on('connection', () => (taken += 1));
    const deaf = await many(server, 20);
    for (const one of deaf) {
      one.socket.pause();
      one.say('GET /big HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(200));
    }
    const count = (): Promise<number> =>
      new Promise((resolve) => server.server.getConnections((_, open) => resolve(open)));
    await expect.poll(() => taken).toBe(20);
    await expectServed(server);
    await expect.poll(count).toBe(0);
  });

  it('is disconnected, most unread bytes first, while clients leave more than unreadBytes unread', async () => {
    const BIGGER = Buffer.alloc(32 * 1024 * 1024);
    const closed = new Set<string>();
    const server = await serve({ unreadBytes: 80 * 1024 * 1024 }, (req, res) => {
      if (req.url === '/') res.end('served');
      // Responds after 10 ms, so that the second response of a connection waits for the first.
      else setTimeout(() => res.end(BIGGER), 10);
      if (req.url !== '/') res.once('close', () => closed.add(req.url!));
    });
    for (const [url, times] of [
      ['/one', 1],
      ['/two', 2],
    ] as const) {
      const slow = await client(server);
      slow.socket.pause();
      slow.say(GET.replace(' / ', ` ${url} `).repeat(times));
      await expectServed(server);
    }
    await expect.poll(() => [...closed], { timeout: 10_000 }).toEqual(['/two']);
    await sleep(1_500);
    expect([...closed]).toEqual(['/two']);
  });

  it.each([
    ['the headers of another request', `${GET}GET / HTTP/1.1\r\nA: `],
    ['a malformed body', `${POST}Transfer-Encoding: chunked\r\n\r\n1;${'x'.repeat(17_000)}`],
  ])('is disconnected when it sends %s slowly and does not read its response', async (_, sent) => {
    const BIGGER = Buffer.alloc(32 * 1024 * 1024);
    let closed = 0;
    const server = await serve({ headersMs: 200, requestMs: 400 }, (_req, res) => {
      res.end(BIGGER);
      res.once('close', () => (closed += 1));
    });
    const deaf = await client(server);
    deaf.socket.pause();
    deaf.say(sent);
    deaf.dribble('x'.repeat(10_000), 50);
    await expect.poll(() => closed, { timeout: 10_000 }).toBe(1);
  });
});

it.each([
  ['readJsonBody', (req: IncomingMessage) => readJsonBody(req, 1_024)],
  [
    'streamBody',
    async (req: IncomingMessage) => {
      const { signal } = new AbortController();
      const { chunks } = streamBody(req, 1_024, ['application/json'], signal);
      await chunks.next();
    },
  ],
])('%s rejects when the client disconnected before the call', async (_, read) => {
  const requests: IncomingMessage[] = [];
  const server = await serve({}, (req) => requests.push(req));
  for (const body of ['{', '{}']) {
    const gone = await client(server);
    gone.say(`${POST}Content-Length: 2\r\n\r\n${body}`);
    await expect.poll(() => requests.length).toBe(1);
    gone.destroy();
    const request = requests.pop()!;
    await expect.poll(() => request.destroyed).toBe(true);
    await expect(read(request)).rejects.toMatchObject({ code: 'incomplete_body' });
  }
});

describe('connection limit', () => {
  it.each([2, 1_000])(
    'closes connections without complete headers first, at %i connections per address',
    async (connectionsPerAddress) => {
      const server = await serve({ connections: 5, connectionsPerAddress });
      const idle = await client(server);
      idle.say(GET);
      await expect.poll(() => statusesOf(idle.received)).toEqual([200]);
      const partial = await client(server);
      partial.say('GET / HTTP/1.1\r\n');
      const silent = await many(server, 3);
      for (const gone of [partial, ...silent]) {
        await expectServed(server);
        expect(await gone.end()).toBe('');
        await client(server);
      }
      expect(idle.isClosed).toBe(false);
    },
  );

  it('keeps one address from shutting out other addresses, even by requests in progress', async () => {
    posts = 0;
    const server = await serve({ connections: 10, connectionsPerAddress: 3 });
    const slow = await client(server);
    slow.say('GET / HTTP/1.1\r\n');
    const attacking = await many(server, 9, '127.0.0.2');
    for (const one of attacking) one.say(`${POST}Content-Length: 10\r\n\r\n{`);
    await expect.poll(() => posts).toBe(9);
    await expectServed(server);
    expect(await attacking[0]!.end()).toBe('');
    for (const late of await many(server, 3, '127.0.0.2')) late.say('GET');
    slow.say('Host: x\r\n\r\n');
    await expect.poll(() => statusesOf(slow.received)).toEqual([200]);
  });

  it('rejects new connections while all existing connections are in use', async () => {
    const held: ServerResponse[] = [];
    const server = await serve({ connections: 5 }, (req, res) => {
      if (req.url === '/held') held.push(res);
      else res.end('served');
    });
    const users = await many(server, 5);
    for (const one of users) one.say('GET /held HTTP/1.1\r\nHost: x\r\n\r\n');
    await expect.poll(() => held.length).toBe(5);
    const late = await client(server);
    late.say(GET);
    expect(await late.end()).toBe('');
    for (const response of held) response.end('held');
    for (const one of users) await expect.poll(() => one.received).toContain('held');
    await expectServed(server);
  });

  it('closes connections that wait for their clients, oldest request first, and no connection that waits for the server', async () => {
    const BIGGER = Buffer.alloc(32 * 1024 * 1024);
    const seen = new Map<string, ServerResponse>();
    const server = await serve({ connections: 8, connectionsPerAddress: 3 }, (req, res) => {
      seen.set(req.url!, res);
      if (req.url!.startsWith('/unread')) res.end(BIGGER);
      else if (req.url !== '/busy-with-bytes') req.resume();
    });
    const send = async (one: RawClient, url: string, request: string): Promise<void> => {
      if (url.startsWith('/unread')) one.socket.pause();
      one.say(request.replace(' / ', ` ${url} `));
      await expect.poll(() => seen.has(url)).toBe(true);
    };
    const incomplete = `${POST}Content-Length: 10\r\n\r\n{`;
    const requests: [url: string, request: string][] = [
      ['/busy', GET],
      ['/busy-and-another', GET + incomplete],
      ['/busy-with-bytes', incomplete],
      ['/incomplete-1', incomplete],
      ['/unread-1', GET],
      ['/incomplete-2', incomplete],
      ['/unread-2', GET],
      ['/incomplete-3', incomplete],
    ];
    const connected: RawClient[] = [];
    for (const n of requests.keys()) connected.push(await client(server, `127.0.0.${2 + (n % 3)}`));
    for (const [url, request] of requests) await send(connected.pop()!, url, request);
    for (const url of ['/unread-1', '/unread-2']) {
      await expect.poll(() => seen.get(url)!.socket?.writableLength).toBeGreaterThan(0);
    }

    const closed = (): string[] =>
      [...seen].flatMap(([url, response]) => (response.destroyed ? [url] : []));
    const expected = requests.slice(3).map(([url]) => url);
    for (const n of expected.keys()) {
      await send(await client(server, `127.0.1.${n}`), `/new-${n}`, GET);
      await expect.poll(closed).toEqual(expected.slice(0, n + 1));
    }
    const late = await client(server, '127.0.0.6');
    expect(await late.end()).toBe('');
    expect(closed()).toEqual(expected);
  });

  it('checks at most a hundred connections to admit a new one', () => {
    const server = new Server();
    const checks: Socket[] = [];
    const busy = new Set<Socket>();
    const orderOf = (socket: Socket): number | null => {
      checks.push(socket);
      return busy.has(socket) ? null : 2;
    };
    boundConnections(server, HTTP_LIMITS, orderOf, () => 0);
    const closed: Socket[] = [];
    const connect = (n: number): Socket => {
      const socket = Object.assign(new EventEmitter(), {
        remoteAddress: `10.0.0.${String(n % 9)}`,
        destroy: () => closed.push(socket),
      }) as unknown as Socket;
      server.emit('connection', socket);
      return socket;
    };
    const sockets = Array.from({ length: HTTP_LIMITS.connections }, (_, n) => connect(n));
    for (const socket of sockets.slice(0, 250)) busy.add(socket);
    const refused = [connect(0), connect(0)];
    connect(0);
    expect(closed).toEqual([...refused, sockets[250]]);
    expect(checks).toHaveLength(300);
    expect(new Set(checks).size).toBe(300);
  });
});

it('pipelined requests > are read up to a limit and answered in order', async () => {
  let open = 0;
  let most = 0;
  const server = await serve({ pipelined: 4 }, (req, res) => {
    open += 1;
    most = Math.max(most, open);
    setTimeout(() => {
      open -= 1;
      res.end(`<${req.url}>`);
    }, 2);
  });
  const flood = await client(server);
  // Long requests, so that one read returns few of them.
  const ask = (n: number): string =>
    `GET /${n} HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(8_000)}\r\n\r\n`;
  flood.say(Array.from({ length: 400 }, (_, n) => ask(n)).join(''));
  await expect
    .poll(() => [...flood.received.matchAll(/<\/(\d+)>/g)].length, { timeout: 15_000 })
    .toBe(400);
  const order = [...flood.received.matchAll(/<\/(\d+)>/g)].map(([, n]) => Number(n));
  expect(order).toEqual(Array.from({ length: 400 }, (_, n) => n));
  // One read returns up to 64 KiB, whatever the limit on pipelined requests.
  expect(most).toBeLessThan(4 + 10);
});

it.each([
  ['a long header', `GET / HTTP/1.1\r\nHost: x\r\nA: ${'a'.repeat(17_000)}\r\n\r\n`],
  ['a long address', `GET /${'a'.repeat(17_000)} HTTP/1.1\r\nHost: x\r\n\r\n`],
  ['thousands of headers', `GET / HTTP/1.1\r\nHost: x\r\n${'A:\r\n'.repeat(3_900)}\r\n`],
])('oversized headers > are rejected: %s', async (_, request) => {
  const server = await serve({});
  const one = await client(server);
  one.say(request);
  const answer = await one.end();
  expect(statusesOf(answer)).toEqual([431]);
  expect(answer).toContain('headers_too_large');
  await expectServed(server);
});

it('bytes after a rejected request > reach no handler', async () => {
  const heard: string[] = [];
  const server = await serve({}, (req, res) => {
    heard.push(req.url ?? '');
    res.end();
  });
  const one = await client(server);
  one.say(`GET /first HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n${GET}${GET}`);
  expect(statusesOf(await one.end())).toEqual([400]);
  expect(heard).toEqual([]);
});

describe('chunked request body', () => {
  const CHUNKED = `${POST}Transfer-Encoding: chunked\r\n\r\n`;

  it.each([
    ['a chunk extension', `${CHUNKED}1;${'a'.repeat(1_000_000)}\r\nx\r\n0\r\n\r\n`],
    ['trailers', `${CHUNKED}0\r\n${`A: ${'b'.repeat(1_000)}\r\n`.repeat(100)}\r\n`],
  ])('is rejected when it consists mostly of %s', async (_, request) => {
    const server = await serve({});
    const one = await client(server);
    one.say(request);
    const statuses = statusesOf(await one.end());
    expect(statuses.length).toBeLessThanOrEqual(1);
    expect(statuses).not.toContain(200);
    await expectServed(server);
  });

  it('must arrive within the request timeout, however it is framed', async () => {
    const server = await serve({ headersMs: 200, requestMs: 500 });
    const flood = await client(server);
    flood.say(CHUNKED);
    const timer = setInterval(() => flood.say(`1;${'a'.repeat(10_000)}\r\nx\r\n`), 5);
    await expectServed(server);
    expect(statusesOf(await flood.end())).toEqual([408]);
    clearInterval(timer);
  });
});

it('listen > names the setting when the address does not belong to this host', async () => {
  const elsewhere = listen(() => undefined, { host: '192.0.2.1', port: 0 });
  await expect(elsewhere).rejects.toThrow('set LISTEN_ADDRESS');
});
