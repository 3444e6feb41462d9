import { rm } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { UNREAD_DETAILS } from '#api/http/responses';
import { BODY_LIMIT, Problem as PublicProblem } from '#api/public/http/problem';
import { ENGINE_DEFAULTS } from '#api/engine/context';
import { Problem as EngineProblem } from '#api/engine/http/problem';
import { SUBMISSION_LIMIT } from '#api/engine/verification/verify-proof';
import { shippedCache } from '#bench/lookup/shipped-cache';
import { HTTP_LIMITS } from '#runtime/http/connections';
import { freePort } from '../fixtures/free-port.js';
import { serveLocally } from '../fixtures/local-server.js';
import { skipsNginx, startBalancer, startPublicCache, withoutNginx } from '../fixtures/nginx.js';
import { RawClient } from '../fixtures/raw-client.js';
import { TestSnapshot } from '../fixtures/snapshot.js';

const snapshot = new TestSnapshot();
afterAll(() => snapshot.close());

const snapshotHeaders = ({ headers }: Response): [string, string][] =>
  [...headers].filter(([name]) => /^x-svc-(tree|snapshot)-/.test(name));

describe.skipIf(skipsNginx)(`deploy/nginx${withoutNginx}`, () => {
  it('serves the snapshot that the public API server serves, before and after a newer snapshot is published', async () => {
    const { registry, clock } = snapshot;
    const publisher = snapshot.publisher();
    const id = registry.addProof();
    registry.verify();
    await publisher.runCycle();
    const publicServer = snapshot.publicServer();
    const direct = await snapshot.serve(publicServer);
    const cache = await startPublicCache(direct.port);
    snapshot.onClose(cache.close);
    const path = `/api/public/verify/proof/${id}`;
    /** The first response after the cached response has expired. */
    const nextThroughCache = async (): Promise<Response> => {
      let found!: Response;
      const isNext = async (): Promise<boolean> => {
        found = await fetch(cache.url + path);
        return found.headers.get('x-svc-cache') !== 'HIT';
      };
      await expect.poll(isNext, { timeout: 10_000, interval: 100 }).toBe(true);
      return found;
    };
    // A response is stored at its second request.
    for (const cached of ['MISS', 'MISS', 'HIT']) {
      expect((await fetch(cache.url + path)).headers.get('x-svc-cache')).toBe(cached);
    }

    clock.at += 61_000;
    const unchanged = await nextThroughCache();
    expect(unchanged.headers.get('x-svc-cache')).toBe('REVALIDATED');
    expect(snapshotHeaders(unchanged)).toEqual(snapshotHeaders(await fetch(direct.url + path)));

    registry.addProof();
    registry.verify();
    await publisher.runCycle();
    await publicServer.poller.refresh();
    const replaced = await nextThroughCache();
    expect(snapshotHeaders(replaced)).toEqual(snapshotHeaders(await fetch(direct.url + path)));
    expect(snapshotHeaders(replaced)).not.toEqual(snapshotHeaders(unchanged));
  });

  it('answers each request with its own request id, even when the response is from the cache', async () => {
    const port = await freePort();
    const server = await serveLocally((req, res) => {
      // Echoes the id, as the public API server does.
      res.setHeader('X-Request-Id', req.headers['x-request-id'] ?? '');
      res.setHeader('Cache-Control', 'public, max-age=60').end();
    }, port);
    const cache = await startPublicCache(port);
    onTestFinished(async () => {
      await cache.close();
      await server.close();
    });
    const found: (string | null)[] = [];
    for (const id of ['client:1', 'client:2', 'client:3', 'client 4']) {
      const { headers } = await fetch(cache.url, { headers: { 'X-Request-Id': id } });
      found.push(headers.get('x-svc-cache'), headers.get('x-request-id'));
    }
    const fresh = expect.stringMatching(/^[0-9a-f]{32}$/) as string;
    const ids = ['client:1', 'client:2', 'client:3', fresh];
    const statuses = ['MISS', 'MISS', 'HIT', 'HIT'];
    expect(found).toEqual(statuses.flatMap((status, at) => [status, ids[at]]));
  });

  it('passes simultaneous requests for a share token on at once', async () => {
    const held: ServerResponse[] = [];
    const server = await serveLocally((_req, res) => {
      held.push(res.setHeader('Cache-Control', 'private, no-store'));
      if (held.length < 3) res.end();
    });
    const cache = await startPublicCache(Number(new URL(server.url).port));
    onTestFinished(async () => {
      await cache.close();
      await server.close();
    });
    const send = () => fetch(`${cache.url}/api/public/verify/share/share_x`);
    await send();
    await send();
    const sent = Array.from({ length: 5 }, send);
    await expect.poll(() => held.length, { timeout: 1_500 }).toBe(7);
    for (const response of held) response.end();
    await Promise.all(sent);
  });

  const publicDetails = {
    ...UNREAD_DETAILS,
    route_not_found: 'The public API has no such path. See /docs for all paths.',
    method_not_allowed: 'Use GET, HEAD or POST.',
    body_too_large: `The body must not be longer than ${String(BODY_LIMIT)} bytes.`,
  };
  const engineDetails = {
    ...UNREAD_DETAILS,
    route_not_found: 'The engine API has no such path. See /docs for all paths.',
    method_not_allowed: 'Use GET, HEAD, POST or DELETE.',
    body_too_large: `Send at most ${String(ENGINE_DEFAULTS.batchLimit)} bytes in a batch, or ${String(SUBMISSION_LIMIT)} in another request.`,
  };
  const longBody = (limit: number) => ({ method: 'POST', body: 'a'.repeat(limit + 1) });
  const errors = [
    ['its own path for malformed requests', '/.malformed', false, 404, 'route_not_found'],
    ['a malformed URI', '/%zz', false, 400, 'malformed_request'],
    ['a long URI', `/${'a'.repeat(9_000)}`, false, 431, 'headers_too_large'],
    ['a long body', '/page.html', true, 413, 'body_too_large'],
  ] as const;
  const apis = [
    ['the public API', startPublicCache, PublicProblem, publicDetails, BODY_LIMIT, false],
    ['the engine', startBalancer, EngineProblem, engineDetails, ENGINE_DEFAULTS.batchLimit, true],
  ] as const;

  describe.each(apis)('in front of %s', (_api, start, Problem, details, bodyLimit, hasId) => {
    it.each(errors)(
      'answers %s with a problem in the format of that API',
      async (_name, path, isLong, status, code) => {
        const nginx = await start(await freePort());
        onTestFinished(nginx.close);
        const headers = { 'X-Request-Id': 'client:1' };
        const sent = isLong ? longBody(bodyLimit) : {};
        const response = await fetch(nginx.url + path, { headers, ...sent });
        expect(response.status).toBe(status);
        expect(response.headers.get('content-type')).toBe('application/problem+json');
        expect(response.headers.get('cache-control')).toBe('no-store');
        // nginx reads no headers after a request line that it rejects.
        const id = response.headers.get('x-request-id')!;
        expect(id).toMatch(/^(client:1|[0-9a-f]{32})$/);
        const problem = new Problem(code, details[code]);
        expect(await response.json()).toEqual(problem.document(hasId ? id : undefined));
      },
    );

    it('answers a request whose body nginx cannot store with a problem', async () => {
      const nginx = await start(await freePort());
      onTestFinished(nginx.close);
      await rm(join(nginx.dir, 'body'), { recursive: true });
      // Without Content-Length, nginx stores a body that does not fit in its buffer, 16 KiB with the chunk sizes.
      const body = new Blob(['a'.repeat(BODY_LIMIT)]).stream();
      const response = await fetch(nginx.url, { method: 'POST', body, duplex: 'half' });
      expect(response.headers.get('content-type')).toBe('application/problem+json');
      expect(response.headers.get('retry-after')).toBe('2');
      expect(response.status).toBe(503);
      expect(await response.json()).toMatchObject({ status: 503, code: 'unavailable' });
    });

    it('answers TRACE with a problem', async () => {
      const nginx = await start(await freePort());
      onTestFinished(nginx.close);
      const client = await RawClient.connect({ port: Number(new URL(nginx.url).port) });
      client.say('TRACE / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
      const [head = '', body = ''] = (await client.end()).split('\r\n\r\n');
      expect(head).toMatch(/^HTTP\/1.1 405 [^]*\nContent-Type: application\/problem\+json\r\n/);
      expect(head).toMatch(/\nAllow: GET, HEAD, POST, (DELETE, )?OPTIONS\r\n/);
      const problem = new Problem('method_not_allowed', details.method_not_allowed);
      expect(JSON.parse(body)).toMatchObject(problem.document());
    });
  });

  it('nginx.conf > answers a failed precondition with a problem that pages may read', async () => {
    const server = await serveLocally((_req, res) => {
      res.writeHead(200, { 'Cache-Control': 'public, max-age=60', ETag: '"a"' }).end();
    });
    const nginx = await startPublicCache(Number(new URL(server.url).port));
    onTestFinished(async () => {
      await nginx.close();
      await server.close();
    });
    const headers = { 'If-Match': '"b"' };
    const send = () => fetch(`${nginx.url}/page.html`, { headers });
    await send();
    const response = await send();
    expect(response.status).toBe(412);
    expect(response.headers.get('content-type')).toBe('application/problem+json');
    expect(response.headers.get('access-control-allow-origin')).toBe('*');
    expect(response.headers.get('access-control-expose-headers')).toContain('Retry-After');
    expect(await response.json()).toMatchObject({ status: 412, code: 'precondition_failed' });
  });

  it.each(['/v1/keys', '/v1/share-tokens', '/access/v1/evaluation'])(
    'balancer.conf > repeats no request for %s that an engine read',
    async (path) => {
      let read = 0;
      const handler = (req: IncomingMessage) => ((read += 1), req.destroy());
      const engines = [await serveLocally(handler), await serveLocally(handler)];
      const nginx = await startBalancer(...engines.map(({ url }) => Number(new URL(url).port)));
      onTestFinished(async () => {
        await nginx.close();
        for (const engine of engines) await engine.close();
      });
      const response = await fetch(nginx.url + path, { method: 'POST', body: '{}' });
      expect(response.status).toBe(503);
      expect(read).toBe(1);
    },
  );

  it('balancer.conf > sends a long batch to the second engine when the first closes the connection', async () => {
    const [port, otherPort] = [await freePort(), await freePort()];
    let dropped = 0;
    const dying = await serveLocally((req) => {
      dropped += 1;
      req.once('data', () => req.destroy());
    }, port);
    const received: number[] = [];
    const other = await serveLocally((req, res) => {
      let bytes = 0;
      req.on('data', (chunk: Buffer) => (bytes += chunk.length));
      req.on('end', () => {
        received.push(bytes);
        res.end();
      });
    }, otherPort);
    const nginx = await startBalancer(port, otherPort);
    onTestFinished(async () => {
      await nginx.close();
      await Promise.all([dying.close(), other.close()]);
    });
    const body = 'a'.repeat(2 * 1024 * 1024);
    const send = async () =>
      (await fetch(`${nginx.url}/v1/batches`, { method: 'POST', body })).status;
    expect([await send(), await send()]).toEqual([200, 200]);
    expect(dropped).toBeGreaterThan(0);
    expect(received).toEqual([body.length, body.length]);
  });

  it('nginx.conf > keeps an idle connection open for as long as a public API server does', () => {
    const [, seconds] = /\n *keepalive_timeout (\d+)s;/.exec(shippedCache('', 0)) ?? [];
    expect(1000 * Number(seconds)).toBe(HTTP_LIMITS.keepAliveMs);
  });

  it.each(['/', '/v1/batches', '/v1/keys'])(
    'balancer.conf > adds no header of its own errors to the response of an engine for %s',
    async (path) => {
      const sent = { 'X-Request-Id': 'engine:1', 'Cache-Control': 'private, no-cache' };
      const engine = await serveLocally((_req, res) => void res.writeHead(503, sent).end());
      const nginx = await startBalancer(Number(new URL(engine.url).port));
      onTestFinished(async () => {
        await nginx.close();
        await engine.close();
      });
      const { headers } = await fetch(nginx.url + path);
      expect(headers.get('x-request-id')).toBe('engine:1');
      expect(headers.get('cache-control')).toBe('private, no-cache');
      expect(headers.get('retry-after')).toBeNull();
    },
  );

  it('balancer.conf > rejects a body of more than 1 MiB, except of a batch', async () => {
    const port = await freePort();
    const engine = await serveLocally(
      (req, res) => req.resume().once('end', () => res.end()),
      port,
    );
    const nginx = await startBalancer(port);
    onTestFinished(async () => {
      await nginx.close();
      await engine.close();
    });
    const send = async (path: string, bytes: number) =>
      (await fetch(nginx.url + path, { method: 'POST', body: 'a'.repeat(bytes) })).status;
    expect(await send('/v1/execute', 1024 * 1024)).toBe(200);
    expect(await send('/v1/execute', 1024 * 1024 + 1)).toBe(413);
    expect(await send('/v1/batches', ENGINE_DEFAULTS.batchLimit)).toBe(200);
    expect(await send('/v1/batches', ENGINE_DEFAULTS.batchLimit + 1)).toBe(413);
  });

  it('balancer.conf > does not buffer a long response whose client does not read', async () => {
    const port = await freePort();
    const LONG = Buffer.alloc(64 * 1024 * 1024);
    const responses: ServerResponse[] = [];
    const engine = await serveLocally(
      (_req, res) => responses.push(res.writeHead(200).end(LONG)),
      port,
    );
    const nginx = await startBalancer(port);
    const client = await RawClient.connect({ port: Number(new URL(nginx.url).port) });
    onTestFinished(async () => {
      client.destroy();
      await nginx.close();
      await engine.close();
    });
    client.socket.pause();
    client.say('GET /v1/proofs HTTP/1.1\r\nHost: x\r\n\r\n');
    await expect.poll(() => responses.length).toBe(1);
    await sleep(1_000);
    expect(responses[0]!.writableLength).toBeGreaterThan(LONG.length / 2);
  });

  it.each([
    ['balancer.conf', startBalancer, 'POST'],
    ['nginx.conf', startPublicCache, 'GET'],
  ] as const)(
    '%s > sends a failed request to the other server, even if that server failed before',
    async (_name, start, method) => {
      const [port, otherPort] = [await freePort(), await freePort()];
      const unanswered: ServerResponse[] = [];
      const server = await serveLocally((req, res) => {
        if (req.url?.startsWith('/long') === true) unanswered.push(res);
        else res.end();
      }, port);
      const nginx = await start(port, otherPort);
      onTestFinished(nginx.close);
      const send = async (path: string): Promise<number> =>
        (await fetch(nginx.url + path, { method })).status;
      // nginx sends half of the requests to the other server first, and avoids it after two failures.
      for (let n = 0; n < 6; n += 1) expect(await send('/')).toBe(200);
      const other = await serveLocally((_req, res) => res.end(), otherPort);
      onTestFinished(other.close);
      const repeated = Array.from({ length: 6 }, (_, n) => send(`/long/${n}`));
      await expect.poll(() => unanswered.length).toBeGreaterThan(2);
      await server.close();
      expect(await Promise.all(repeated)).toEqual(repeated.map(() => 200));
    },
  );
});
