import { announcePending } from '#sql/admissions/outcomes';
import { beforeAll, describe, expect, it } from 'vitest';
import type { QueueConfig } from '#runtime/config';
import { openAdmitQueue, openBatchQueue, openConsumer } from '#runtime/queue/queues';
import { CHUNK_ITEMS } from '#sql/batches/accept';
import { acceptIntake } from '#sql/admissions/intake';
import { dispatchChunks } from '#workers/admit/batches';
import { processAdmissions, processChunks } from '#workers/admit/process';
import { startAdmitWorker, WORKER_DEFAULTS } from '#workers/admit/worker';
import { accepted, stateOf } from '../fixtures/admissions.js';
import { agentItem, closeEnvelope, newRunId } from '../fixtures/agent.js';
import { beforeRow } from '../fixtures/database.js';
import { APPEND_LOCK, holdLock, untilWaiting } from '../fixtures/hold-lock.js';
import { acceptedBatch, workItems } from '../fixtures/batch-items.js';
import { workBatches } from '../fixtures/engine.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

beforeAll(async () => {
  await registry.addTenant('other');
});

const log = { warn: () => undefined };

/** The log positions of these proofs, in order. */
async function places(ids: string[]): Promise<number[]> {
  const rows = await db.sql<{ at: number }[]>`
    select leaf_index::int as at from svc.log_entry where proof_id = any(${ids}::uuid[]) order by 1`;
  return rows.map(({ at }) => at);
}

const config = (): QueueConfig => ({ databaseUrl: db.urlFor('svc_worker'), redisUrl: null });

describe('batch dispatcher', () => {
  it('limits the number of chunks in the queue', async () => {
    const queue = openBatchQueue(config(), { log });
    await acceptedBatch(registry, CHUNK_ITEMS * 5);
    const options = { sql: registry.admit.sql, log: registry.admit.log, queue, ahead: 2 };
    await dispatchChunks(options);
    await dispatchChunks(options);
    expect(await queue.depth()).toBe(2);
    const seen: string[][] = [];
    const chunks = (ids: string[]) => Promise.resolve(void seen.push(ids));
    const worker = openConsumer(config(), 'batch', { chunks }, { concurrency: 1, log });
    await expect.poll(() => seen.length).toBe(2);
    expect(seen.map((ids) => ids.length)).toEqual([1, 1]);
    expect(await dispatchChunks(options)).toBe(CHUNK_ITEMS * 2);
    await worker.close();
    await queue.close();
    await workBatches(registry);
  });

  it('serves single admissions before batches, and tenants in rotation', async () => {
    const queue = openAdmitQueue(config(), { log });
    const unlock = await holdLock(db.sql, APPEND_LOCK);
    const big = await acceptedBatch(registry, CHUNK_ITEMS * 8);
    const worker = startAdmitWorker(registry.admit, config(), {
      ...WORKER_DEFAULTS,
      staleAfterMs: 60_000,
    });
    await worker.ready;
    await queue.addBatches([big.hex]);
    // The first chunk waits for the lock while a single admission and another batch arrive.
    await untilWaiting(db.sql);
    const alone = registry.item();
    await acceptIntake(registry.engine, [alone]);
    await announcePending(registry.engine, [alone.proofId], ['test'], [registry.tenantNo]);
    await untilWaiting(db.sql, 2);
    const small = await acceptedBatch(registry, 20, 'other');
    await queue.addBatches([small.hex]);
    await unlock();
    await workItems(db, [big, small]);
    const [bigs, smalls] = [await places(big.ids), await places(small.ids)];
    const [single] = await places([alone.proofId]);
    expect(bigs.filter((at) => at < (single ?? Infinity)).length).toBeLessThanOrEqual(CHUNK_ITEMS);
    // Chunks that were dispatched before the single admission go first.
    const before = bigs.filter((at) => at < (smalls[0] ?? Infinity)).length;
    expect(before).toBeLessThanOrEqual(CHUNK_ITEMS * (WORKER_DEFAULTS.batchConcurrency * 2 + 1));
    expect(before).toBeLessThan(bigs.length);
    await worker.close();
    await queue.close();
  }, 60_000);
});

const FALSE_COUNT = /check constraint|may only advance/;

it.each([
  ['has a wrong total', `update svc.chunk_pending set answers = '{5}'`],
  [
    'is already complete',
    `alter table svc.batch_progress disable trigger only_counts;
     update svc.batch_progress set admitted = pending, pending = 0, completed_at = now();
     alter table svc.batch_progress enable trigger only_counts`,
  ],
])(
  'an admission of a batch that %s stays pending, and the others in its group are decided',
  async (_name, falsify) => {
    const { ids } = await acceptedBatch(registry, 1);
    await db.sql.unsafe(falsify);
    await expect(processChunks(registry.admit, ids)).rejects.toThrow(FALSE_COUNT);
    const other = await accepted(registry, registry.item());
    const close = agentItem(registry, closeEnvelope({ id: newRunId(), seq: 0 }));
    const end = await accepted(registry, close);
    for (const next of [end, other]) {
      const both = processAdmissions(registry.admit, [...ids, next]);
      await expect(both).rejects.toThrow(/^1 of the group's admissions deferred/);
      await expect(both).rejects.toThrow(FALSE_COUNT);
      expect(await stateOf(registry, next)).toMatchObject({ state: 'proved' });
    }
    expect(await stateOf(registry, ids[0]!)).toBeUndefined();
  },
);

it('an error that no admission caused ends the retries of a group one by one', async () => {
  const items = Array.from({ length: 4 }, () => registry.item());
  await acceptIntake(registry.engine, items);
  const ids = items.map(({ proofId }) => proofId);
  const [, faulty, denied] = ids;
  const restore = await beforeRow(
    db,
    'insert on svc.log_entry',
    `if new.proof_id = '${faulty!}' then raise exception 'faulty'; end if;
     if new.proof_id = '${denied!}' then raise insufficient_privilege; end if;`,
  );
  await expect(processAdmissions(registry.admit, ids)).rejects.toMatchObject({
    message: expect.stringMatching(/^2 of the group's admissions deferred/) as string,
    cause: { code: '42501' },
  });
  await restore();
  const states = await Promise.all(ids.map((id) => stateOf(registry, id)));
  expect(states.map((one) => one?.state)).toEqual(['proved', 'refused', undefined, undefined]);
});
