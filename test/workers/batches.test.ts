import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { QueueConfig } from '#runtime/config';
import { MAX_IDS_PER_JOB } from '#runtime/queue/backend';
import { openAdmitQueue, openBatchQueue, openConsumer } from '#runtime/queue/queues';
import { CHUNK_ITEMS } from '#sql/batches/accept';
import { loadChunks } from '#sql/admissions/append';
import { acceptIntake } from '#sql/admissions/intake';
import { dispatchChunks } from '#workers/admit/batches';
import { processChunks } from '#workers/admit/process';
import { startAdmitWorker, WORKER_DEFAULTS } from '#workers/admit/worker';
import { holdAppendLock, untilWaiting } from '../fixtures/append-lock.js';
import { acceptedBatch, workItems } from '../fixtures/batch-items.js';
import { workBatches } from '../fixtures/engine.js';
import { startRedis, type TestRedis } from '../fixtures/redis.js';
import { useRegistry } from '../fixtures/use-registry.js';

const withRedis = Boolean(process.env['TEST_REDIS_URL']);

const { db, registry } = useRegistry('file');
let redis: TestRedis | null = null;

beforeAll(async () => {
  await registry.addTenant('other');
  if (withRedis) redis = await startRedis();
});
afterAll(() => redis?.close());

const log = { warn: () => undefined };

/** The log positions of these proofs, in order. */
async function places(ids: string[]): Promise<number[]> {
  const rows = await db.sql<{ at: number }[]>`
    select leaf_index::int as at from svc.log_entry where proof_id = any(${ids}::uuid[]) order by 1`;
  return rows.map(({ at }) => at);
}

it('a job that names more chunks than a lease has is processed only in part', async () => {
  const some = [await acceptedBatch(registry, 2), await acceptedBatch(registry, 2)];
  const chunkIds = await db.sql<{ id: string }[]>`
    select chunk_id as id from svc.chunk_pending order by batch_id`;
  const ids = chunkIds.map(({ id }) => id);
  expect(await loadChunks(registry.admit.sql, ids, 3)).toHaveLength(2);
  expect(await loadChunks(registry.admit.sql, ids, 4)).toHaveLength(4);
  await processChunks(registry.admit, ids);
  expect(await places(some.flatMap((batch) => batch.ids))).toHaveLength(4);
});

describe.each([
  {
    queue: 'Postgres',
    skip: false,
    config: (): QueueConfig => ({ databaseUrl: db.urlFor('svc_worker'), redisUrl: null }),
  },
  {
    queue: withRedis ? 'Redis' : 'Redis (skipped: TEST_REDIS_URL is not set)',
    skip: !withRedis,
    config: (): QueueConfig => ({
      databaseUrl: db.urlFor('svc_worker'),
      redisUrl: redis?.url ?? '',
    }),
  },
])('batch dispatcher with the queue in $queue', ({ skip, config }) => {
  it.skipIf(skip)('limits the number of chunks in the queue', async () => {
    const queue = openBatchQueue(config(), { log });
    await acceptedBatch(registry, CHUNK_ITEMS * 5);
    const options = { sql: registry.admit.sql, log: registry.admit.log, queue, ahead: 2 };
    await dispatchChunks(options);
    await dispatchChunks(options);
    expect(await queue.depth()).toBe(2);
    const seen: string[][] = [];
    const admissions = (ids: string[]) => Promise.resolve(void seen.push(ids));
    const worker = openConsumer(config(), 'batch', { admissions }, { concurrency: 1, log });
    await expect.poll(() => seen.length).toBe(2);
    expect(seen.map((ids) => ids.length)).toEqual([1, 1]);
    expect(await dispatchChunks(options)).toBe(CHUNK_ITEMS * 2);
    await worker.close();
    await queue.close();
    await workBatches(registry);
  });

  it.skipIf(skip)(
    'serves single admissions before batches, and tenants in rotation',
    async () => {
      const queue = openAdmitQueue(config(), { log });
      const lock = await holdAppendLock(registry.admin);
      const big = await acceptedBatch(registry, CHUNK_ITEMS * 8);
      const worker = startAdmitWorker(registry.admit, config(), {
        ...WORKER_DEFAULTS,
        staleAfterMs: 60_000,
      });
      await worker.ready;
      await queue.addBatches([big.hex]);
      // The first chunk waits for the lock while a single admission and another batch arrive.
      await untilWaiting(db.sql, 1);
      const alone = registry.item();
      await acceptIntake(registry.engine, [alone]);
      await queue.add([alone.proofId]);
      await untilWaiting(db.sql, 2);
      const small = await acceptedBatch(registry, 20, 'other');
      await queue.addBatches([small.hex]);
      await lock.commit();
      await workItems(db, [big, small]);
      const [bigs, smalls] = [await places(big.ids), await places(small.ids)];
      const [single] = await places([alone.proofId]);
      expect(bigs.filter((at) => at < (single ?? Infinity)).length).toBeLessThanOrEqual(
        CHUNK_ITEMS,
      );
      // Chunks that were dispatched before the single admission go first.
      const before = bigs.filter((at) => at < (smalls[0] ?? Infinity)).length;
      expect(before).toBeLessThanOrEqual(CHUNK_ITEMS * (WORKER_DEFAULTS.batchConcurrency * 2 + 1));
      expect(before).toBeLessThan(bigs.length);
      await worker.close();
      await queue.close();
    },
    60_000,
  );

  it.skipIf(skip)('requeues chunks that the queue lost', async () => {
    const queue = openBatchQueue(config(), { log });
    const batch = await acceptedBatch(registry, CHUNK_ITEMS * 3);
    // Chunks that were dispatched, and that the queue then lost.
    const lost = { depth: () => Promise.resolve(0), add: () => Promise.resolve('lost') };
    const options = { sql: registry.admit.sql, log: registry.admit.log, queue: lost, ahead: 9 };
    expect(await dispatchChunks(options)).toBe(CHUNK_ITEMS * 3);
    const worker = startAdmitWorker(registry.admit, config(), {
      ...WORKER_DEFAULTS,
      requeueEveryMs: 20,
      chunkLeaseMs: 100,
    });
    await workItems(db, [batch]);
    await worker.close();
    await queue.close();
  });
});

it('dispatchChunks > dispatches at most as many items as a job may contain', () => {
  expect(CHUNK_ITEMS).toBeLessThanOrEqual(MAX_IDS_PER_JOB);
});

describe('job with many admissions', () => {
  it('yields to the event loop while the worker signs', async () => {
    const batch = await acceptedBatch(registry, CHUNK_ITEMS);
    let others = 0;
    let signing = true;
    const tick = (): void => {
      others += 1;
      if (signing) setImmediate(tick);
    };
    const seen: number[] = [];
    setImmediate(tick);
    const policy: typeof registry.admit.policy = (digest) => {
      seen.push(others);
      return registry.admit.policy(digest);
    };
    await processChunks({ ...registry.admit, policy }, batch.ids);
    signing = false;
    expect(seen).toHaveLength(CHUNK_ITEMS);
    // The first iteration may have waited for the policy set.
    expect((seen.at(-1) ?? 0) - (seen[1] ?? 0)).toBeGreaterThan(0);
  });
});
