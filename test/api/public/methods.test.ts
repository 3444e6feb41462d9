import { Agent, METHODS, type IncomingHttpHeaders } from 'node:http';
import { connect } from 'node:net';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OPERATIONS } from '#api/public/operations';
import { SCENARIOS } from '../../fixtures/public-server-scenarios.js';
import { openPublicServers, type PublicServers } from '../../fixtures/public-servers.js';
import { expectSecurityHeaders } from '../../fixtures/security-headers.js';
import type { Call, Reply } from '../../fixtures/send.js';

let world: PublicServers;
beforeAll(async () => {
  world = await openPublicServers();
});
afterAll(() => world.close());

/** Every path, with the methods that its operations have. */
const paths = [...new Set(OPERATIONS.map(({ spec }) => spec.path))].map((path) => {
  const served = OPERATIONS.filter(({ spec }) => spec.path === path).map(({ spec }) => spec);
  const methods = served.map(({ method }) => method.toUpperCase());
  return { path, get: served.find(({ method }) => method === 'get')!, methods };
});

const ORIGIN = { Origin: 'https://elsewhere.example' };

/** All members that do not depend on the time. */
function stable({ date: _date, ...headers }: IncomingHttpHeaders): IncomingHttpHeaders {
  return headers;
}

function expectOpen({ headers }: Reply): void {
  expect(headers['access-control-allow-origin']).toBe('*');
  expect(headers['access-control-expose-headers']).toContain('X-Svc-Tree-Size');
  // CORS allows every origin without credentials, so caches need no Vary.
  expect(headers).not.toHaveProperty('access-control-allow-credentials');
  expect(headers).not.toHaveProperty('set-cookie');
  expect(headers).not.toHaveProperty('vary');
  expectSecurityHeaders(headers, 'public');
}

describe.each(paths)('$path', ({ get, methods }) => {
  const allow = methods
    .flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
    .concat('OPTIONS');
  const good = (): Call => SCENARIOS[get.id]!.good(world);

  it('answers GET equally for every origin', async () => {
    const here = await world.good.call(good());
    const there = await world.good.call({ ...good(), headers: ORIGIN });
    expect(here.status).toBe(200);
    expectOpen(here);
    expect(there.bytes).toEqual(here.bytes);
    expect(stable(there.headers)).toEqual(stable(here.headers));
  });

  it('answers HEAD like GET without the body', async () => {
    const whole = await world.good.call(good());
    const head = await world.good.call({ ...good(), method: 'HEAD' });
    expect(head.status).toBe(whole.status);
    expect(stable(head.headers)).toEqual(stable(whole.headers));
    expect(Number(head.headers['content-length'])).toBe(whole.bytes.length);
    expect(head.bytes).toHaveLength(0);
    const { etag } = whole.headers;
    if (etag === undefined) return;
    for (const method of ['GET', 'HEAD']) {
      const again = await world.good.call({
        ...good(),
        method,
        headers: { 'If-None-Match': etag },
      });
      expect(again.status).toBe(304);
      expect(again.bytes).toHaveLength(0);
      expect(again.headers.etag).toBe(etag);
      expectOpen(again);
    }
  });

  it('answers OPTIONS with Allow and the CORS preflight headers', async () => {
    const preflight = {
      ...ORIGIN,
      'Access-Control-Request-Method': methods.at(-1)!,
      'Access-Control-Request-Headers': 'content-type, if-none-match',
    };
    for (const headers of [{}, preflight]) {
      const reply = await world.good.call({ ...good(), method: 'OPTIONS', headers });
      expect(reply.status).toBe(204);
      expect(reply.bytes).toHaveLength(0);
      expectOpen(reply);
      expect(reply.headers.allow).toBe(allow.join(', '));
      expect(reply.headers['access-control-allow-methods']).toBe(allow.join(', '));
      expect(reply.headers['access-control-allow-headers']).toBe('Content-Type, If-None-Match');
      expect(Number(reply.headers['access-control-max-age'])).toBeGreaterThan(0);
    }
  });

  it('answers any other method with 405 and Allow', async () => {
    // Node treats CONNECT as a tunnel, not as a request.
    const others = METHODS.filter((method) => ![...allow, 'CONNECT'].includes(method));
    expect(others).toContain('DELETE');
    for (const method of others) {
      const reply = await world.good.call({ ...good(), method, headers: ORIGIN });
      expect([method, reply.status]).toEqual([method, 405]);
      expect(reply.headers.allow).toBe(allow.join(', '));
      expect(reply.json).toMatchObject({ code: 'method_not_allowed', status: 405 });
      expectOpen(reply);
    }
  });

  it('allows every origin also without a readable snapshot', async () => {
    for (const one of [world.empty, world.expired, world.unreadable]) {
      const whole = await one.call({ ...good(), headers: ORIGIN });
      expectOpen(whole);
      const head = await one.call({ ...good(), method: 'HEAD', headers: ORIGIN });
      expect([head.status, stable(head.headers)]).toEqual([whole.status, stable(whole.headers)]);
      const options = await one.call({ ...good(), method: 'OPTIONS' });
      expect(options.status).toBe(204);
    }
  });
});

describe('unknown path', () => {
  it.each([
    '/nothing',
    '/api/public/verify/',
    '/healthz/',
    '/LOG/checkpoint',
    '/api/public/trust/x/y',
  ])('is 404 for every method: %s', async (path) => {
    for (const method of ['GET', 'HEAD', 'POST', 'OPTIONS', 'DELETE']) {
      const reply = await world.good.call({ path, method, headers: ORIGIN });
      expect(reply.status).toBe(404);
      if (method !== 'HEAD') expect(reply.json['code']).toBe('route_not_found');
      expectOpen(reply);
    }
  });
});

describe('unexpected request body', () => {
  const long = Buffer.alloc(6 * 1024 * 1024, 'x');

  it.each(['/api/public/verify', '/healthz', '/nothing'])(
    'does not lose the response at %s',
    async (path) => {
      for (let i = 0; i < 5; i += 1) {
        const reply = await world.good.call({
          path,
          method: 'POST',
          // A client that offers to keep the connection.
          agent: new Agent({ keepAlive: true }),
          headers: { 'Content-Type': 'application/json', 'Content-Length': String(long.length) },
          body: long,
        });
        expect(reply.headers['content-type']).toBe('application/problem+json');
        expect(reply.headers['connection']).toBe('close');
        expectOpen(reply);
      }
    },
  );
});

describe('client that sends without reading', () => {
  it('gets its response when it reads', async () => {
    const socket = connect({ host: '127.0.0.1', port: world.good.server.port });
    socket.pause();
    const failed = new Promise<never>((_, reject) => socket.once('error', reject));
    const head = 'POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 6000000\r\n\r\n';
    socket.write(head);
    for (let i = 0; i < 4; i += 1) {
      await Promise.race([sleep(100), failed]);
      socket.write(Buffer.alloc(200_000, 'x'));
    }
    socket.setEncoding('latin1').resume();
    const answer = once(socket, 'data') as Promise<[string]>;
    const [text] = await Promise.race([answer, failed]);
    expect(text).toContain('HTTP/1.1 404 Not Found');
    expect(text).toContain('Connection: close');
    socket.destroy();
  });
});

describe('malformed request', () => {
  it('gets a response that allows every origin', async () => {
    const reply = await world.good.call({ path: `/?${'x'.repeat(20_000)}` });
    expect(reply.status).toBe(431);
    expectSecurityHeaders(reply.headers, 'public');
    expect(reply.json).toMatchObject({ code: 'headers_too_large' });
  });
});
