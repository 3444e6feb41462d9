import { describe, expect } from 'vitest';
import { createOutcomeWaiter } from '#api/engine/admission/wait';
import { ENGINE_DEFAULTS } from '#api/engine/context';
import { createEngine } from '#api/engine/engine';
import { createPdfRenderer, PDF_DEFAULTS } from '#api/engine/pdf/pool';
import { listen } from '#runtime/http/server';
import { connect } from '#runtime/postgres/connect';
import { systemClock } from '#runtime/process/clock';
import { logger } from '#runtime/process/log';
import { openAdmitEvents, openAdmitQueue, openAdmitWorker } from '#runtime/queue/queues';
import { readOutcomes } from '#sql/admissions/outcomes';
import { TENANT_CONNECTIONS, TenantConnections } from '#sql/db/tenant-connections';
import { settledRevocations } from '#sql/lifecycle/revocations';
import { processAdmissions } from '#workers/admit/process';
import {
  executeBody,
  headersFor,
  send,
  startEngine,
  type TestEngine,
} from '../../fixtures/engine.js';
import { startTcpProxy, type TcpProxy } from '../../fixtures/tcp-proxy.js';
import { engineTest } from './setup.js';

const it = engineTest().extend<{ proxy: TcpProxy; engine: TestEngine }>({
  proxy: async ({ setup: { db } }, use) => {
    const proxy = await startTcpProxy(new URL(db.urlFor('svc_engine')));
    await use(proxy);
    proxy.close();
  },
  /** Reaches its database through the proxy. */
  engine: async ({ proxy, setup: { registry } }, use) => {
    const sql = connect(proxy.url, { application: 'test', max: 4, connectTimeoutMs: 1_000 });
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

    await proxy.leave();
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

    await proxy.comeBack();
    await expect.poll(async () => (await ask()).status).toBe(200);
  });

  it('keeps waiting for accepted admissions and responds after recovery', async ({
    engine,
    proxy,
    setup: { key },
  }) => {
    engine.worker.rests = true;
    const waiting = engine.call({ headers: headersFor(key), body: JSON.stringify(executeBody()) });
    await expect.poll(() => engine.worker.jobs.length).toBe(1);
    await proxy.leave();
    await engine.worker.work();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await proxy.comeBack();
    expect((await waiting).status).toBe(200);
  });
});

describe('engine without its queue', () => {
  it('is degraded but ready', async ({ setup }) => {
    const { engine } = setup;
    engine.worker.fails = new Error('away');
    const reply = await engine.call({ method: 'GET', path: '/readyz' });
    expect(reply.status).toBe(200);
    expect(reply.json).toEqual({
      status: 'degraded',
      dependencies: { database: 'up', queue: 'down' },
    });
  });
});

describe('queue in the database', () => {
  it('delivers each admission once from engine to worker', async ({ setup }) => {
    const { db, key, registry } = setup;
    const log = logger('test', 'silent');
    const engineQueue = { databaseUrl: db.urlFor('svc_engine'), redisUrl: null };
    const workerQueue = { databaseUrl: db.urlFor('svc_worker'), redisUrl: null };
    const waiting = createOutcomeWaiter({
      readOutcomes: (ids) => readOutcomes(registry.engine, ids),
      log,
    });
    const revocations = createOutcomeWaiter({
      readOutcomes: (ids) => settledRevocations(registry.engine, ids),
      log,
    });
    const queue = openAdmitQueue(engineQueue, { log });
    const events = openAdmitEvents(engineQueue, (_job, ids) => waiting.wake(ids ?? []), { log });
    const worker = openAdmitWorker(workerQueue, (ids) => processAdmissions(registry.admit, ids), {
      concurrency: 2,
      log,
    });
    await Promise.all([events.ready, worker.ready]);
    const engine = createEngine({
      ...ENGINE_DEFAULTS,
      sql: registry.engine,
      tenantSql: new TenantConnections({ ...TENANT_CONNECTIONS, sql: registry.engine }),
      queue,
      waiting,
      revocations,
      log,
      clock: systemClock,
      pdf: createPdfRenderer(PDF_DEFAULTS),
      publicUrl: 'https://registry.example',
      admissionsPaused: false,
    });
    const server = await listen(engine, { host: '127.0.0.1', port: 0 });
    const before = await setup.treeSize();
    const bodies = Array.from({ length: 40 }, () => JSON.stringify(executeBody()));
    const ask = () =>
      Promise.all(bodies.map((body) => send(server.url, { headers: headersFor(key), body })));
    const first = await ask();
    expect(first.map(({ status }) => status)).toEqual(bodies.map(() => 200));
    const again = await ask();
    expect(again.map(({ bytes }) => bytes.toString())).toEqual(
      first.map(({ bytes }) => bytes.toString()),
    );
    expect(await setup.treeSize()).toBe(before + 40);
    await server.close(1_000);
    await events.close();
    await queue.close();
    await worker.close();
  });
});
