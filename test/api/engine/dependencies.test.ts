import { describe, expect } from 'vitest';
import { connect } from '#runtime/postgres/connect';
import { executeBody, headersFor, startEngine, type TestEngine } from '../../fixtures/engine.js';
import { TcpProxy } from '../../fixtures/tcp-proxy.js';
import { engineTest } from './setup.js';

const it = engineTest().extend<{ proxy: TcpProxy; engine: TestEngine }>({
  proxy: async ({ setup: { db } }, use) => {
    const proxy = await TcpProxy.open(db.urlFor('svc_engine'), 'other');
    await use(proxy);
    await proxy.close();
  },
  /** An engine that reaches its database through the proxy. */
  engine: async ({ proxy, setup: { db, registry } }, use) => {
    const url = proxy.urlFor(db.urlFor('svc_engine'));
    const sql = connect(url, { application: 'test', max: 4, connectTimeoutMs: 1_000 });
    const engine = await startEngine(registry, { sql });
    await use(engine);
    await engine.close();
    await sql.end({ timeout: 1 });
  },
});

describe('engine without its database', () => {
  it('responds with 503, is not ready, and recovers', async ({ engine, proxy, setup: { key } }) => {
    const ask = (headers = headersFor(key)) =>
      engine.call({ headers, body: JSON.stringify(executeBody()) });
    const read = (path: string) => engine.call({ method: 'GET', path, headers: headersFor(key) });
    expect((await ask()).status).toBe(200);
    expect((await read('/readyz')).json).toEqual({
      status: 'ready',
      dependencies: { database: 'up', queue: 'up' },
    });

    proxy.cut(true);
    const unavailable = { status: 503, code: 'database_unavailable' };
    const replies = [
      await ask(),
      // The response must not reveal whether the key is valid.
      await ask({ ...headersFor(key), 'X-Svc-Api-Key': 'malformed' }),
      await read(`/v1/proofs/${'0'.repeat(32)}`),
      await read(`/v1/admissions/${'0'.repeat(32)}`),
    ];
    for (const reply of replies) {
      expect(reply.status).toBe(503);
      expect(reply.json).toMatchObject(unavailable);
      expect(reply.headers['retry-after']).toBe('1');
    }
    const ready = await read('/readyz');
    expect(ready.status).toBe(503);
    expect(ready.json).toEqual({
      status: 'unavailable',
      dependencies: { database: 'down', queue: 'up' },
    });
    expect((await read('/healthz')).status).toBe(200);

    proxy.cut(false);
    await expect.poll(async () => (await ask()).status).toBe(200);
  });

  it('keeps requests for accepted admissions waiting and responds after recovery', async ({
    engine,
    proxy,
    setup: { key },
  }) => {
    engine.worker.isPaused = true;
    const waiting = engine.call({ headers: headersFor(key), body: JSON.stringify(executeBody()) });
    await expect.poll(() => engine.worker.jobs.length).toBe(1);
    proxy.cut(true);
    await engine.worker.work();
    await new Promise((resolve) => setTimeout(resolve, 300));
    proxy.cut(false);
    expect((await waiting).status).toBe(200);
  });
});

it('engine without its queue > reports degraded but ready', async ({ setup }) => {
  const { engine } = setup;
  engine.worker.fails = new Error('away');
  const reply = await engine.call({ method: 'GET', path: '/readyz' });
  expect(reply.status).toBe(200);
  expect(reply.json).toEqual({
    status: 'degraded',
    dependencies: { database: 'up', queue: 'down' },
  });
});
