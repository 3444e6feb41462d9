import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdmitWorker, startAdmitWorker, WORKER_DEFAULTS } from '#workers/admit/worker';
import { openAdmitQueue } from '#runtime/queue/queues';
import { announcePending } from '#sql/admissions/outcomes';
import { accepted, stateOf } from '../fixtures/admissions.js';
import { acceptedBatch } from '../fixtures/batch-items.js';
import { skipsRedis, startRedis, withoutRedis, type TestRedis } from '../fixtures/redis.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');
const WAIT = { timeout: 20_000, interval: 50 };
const lines: { msg: string }[] = [];
const log = pino(
  { level: 'info' },
  { write: (line: string) => void lines.push(JSON.parse(line) as { msg: string }) },
);
const named = () => lines.map(({ msg }) => msg).filter((msg) => msg.startsWith('Redis'));

let redis: TestRedis;
let worker: AdmitWorker;

/** Starts a worker that would not find a stale admission during the test. */
const start = (): AdmitWorker =>
  startAdmitWorker(
    { ...registry.admit, log },
    { databaseUrl: db.urlFor('svc_worker'), redisUrl: redis.url },
    { ...WORKER_DEFAULTS, requeueEveryMs: 3_600_000, staleAfterMs: 3_600_000 },
  );
const proved = async (): Promise<void> => {
  const id = await accepted(registry, registry.item());
  await announcePending(registry.engine, [id], ['of-this-test'], [registry.tenantNo]);
  await expect.poll(() => stateOf(registry, id), WAIT).toMatchObject({ state: 'proved' });
};

describe.skipIf(skipsRedis)(`a worker without Redis${withoutRedis}`, () => {
  beforeAll(async () => {
    redis = await startRedis();
    worker = start();
    await worker.ready;
  });
  afterAll(async () => {
    await worker.close();
    await redis.close();
  });

  it.each([
    ['is killed', (): unknown => redis.kill(), (): unknown => redis.start()],
    [
      'hangs',
      (): unknown => process.kill(redis.pid, 'SIGSTOP'),
      (): unknown => process.kill(redis.pid, 'SIGCONT'),
    ],
    [
      'only reads',
      (): unknown => redis.client.call('REPLICAOF', '127.0.0.1', '1'),
      (): unknown => redis.client.call('REPLICAOF', 'NO', 'ONE'),
    ],
    [
      'has no memory',
      (): unknown => redis.client.config('SET', 'maxmemory', '1'),
      (): unknown => redis.client.config('SET', 'maxmemory', '0'),
    ],
  ])(
    'processes announced admissions and finds batches in the registry while Redis %s',
    async (_, stop, restart) => {
      lines.length = 0;
      // No engine has announced this batch.
      const { ids } = await acceptedBatch(registry, 3);
      await sleep(1_100);
      // The worker searches the registry only while Redis is unreachable.
      expect(await stateOf(registry, ids[0]!)).toBeUndefined();
      await stop();
      await expect.poll(() => stateOf(registry, ids[0]!), WAIT).toMatchObject({ state: 'proved' });
      await proved();
      expect(named()).toEqual([
        'Redis is unreachable: this worker finds batches and revocations in PostgreSQL until Redis answers',
      ]);
      expect(worker.isQueueUp()).toBe(false);
      expect(await worker.readiness()).toMatchObject({
        ready: true,
        details: { status: 'degraded', dependencies: { queue: 'down' } },
      });
      await restart();
      await expect.poll(named, WAIT).toHaveLength(2);
      await expect
        .poll(() => worker.readiness(), WAIT)
        .toMatchObject({ details: { status: 'ready' } });
    },
    60_000,
  );

  it('is ready when it starts during an outage', async () => {
    await redis.kill();
    await worker.close();
    const before = await accepted(registry, registry.item());
    worker = start();
    await worker.ready;
    // A worker that begins to listen also finds admissions that were announced earlier.
    await expect.poll(() => stateOf(registry, before), WAIT).toMatchObject({ state: 'proved' });
    await proved();
    await redis.start();
  }, 60_000);

  it('processes batches although another process has paused and limited the queues', async () => {
    await worker.close();
    const keys = ['admit', 'batch'].map((name) => `{svc}:${name}`);
    const pause = () =>
      Promise.all(keys.map((key) => redis.client.hset(`${key}:meta`, 'paused', '1')));
    await pause();
    worker = start();
    await worker.ready;
    const engine = openAdmitQueue({ databaseUrl: db.url, redisUrl: redis.url }, { log });
    for (let i = 0; i < 2; i += 1) {
      const { hex, ids } = await acceptedBatch(registry, 3);
      await engine.addBatches([hex]);
      await expect.poll(() => stateOf(registry, ids[0]!), WAIT).toMatchObject({ state: 'proved' });
      await pause();
    }
    await engine.close();
    await worker.close();
    for (const key of keys) {
      await redis.client.hset(`${key}:meta`, { max: '1', duration: '3600000', concurrency: '1' });
      await redis.client.set(`${key}:limiter`, '1000', 'PX', 3_600_000);
    }
    worker = start();
    const limits = keys.map((key) => async () => [
      ...(await redis.client.hmget(`${key}:meta`, 'max', 'duration', 'concurrency')),
      await redis.client.get(`${key}:limiter`),
    ]);
    for (const found of limits) await expect.poll(found, WAIT).toEqual([null, null, null, null]);
  }, 60_000);
});
