import { expect, it } from 'vitest';
import { leaseNextChunks, splitChunks } from '#sql/batches/chunks';
import { transaction } from '#sql/db/transaction';
import { batchesFrom } from '#sql/fsck/admissions';
import { batchItem, storeBatch } from '../fixtures/batch-items.js';
import { workBatches } from '../fixtures/engine.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

/** Numbers of scans of the tables of pending items that a page with all batches needs. */
const scans = (): Promise<number[]> =>
  transaction(db.sql, async (tx) => {
    await batchesFrom(tx, `batch_${'0'.repeat(32)}`, 100);
    const tables = await tx<{ scans: number }[]>`
      select (seq_scan + coalesce(idx_scan, 0))::integer as scans from pg_stat_xact_user_tables
      where relname in ('intake_pending', 'batch_watch', 'chunk_pending')`;
    return tables.map((one) => one.scans);
  });

it('batchesFrom > counts the pending items of all batches of a page in one scan', async () => {
  const items = (count: number) =>
    Array.from({ length: count }, (_, index) => batchItem(registry.item(), index));
  const accept = async (some = items(2)): Promise<string> => {
    const outcome = await storeBatch(registry, some);
    if (outcome.outcome !== 'accepted') throw new Error(outcome.outcome);
    return outcome.batchId;
  };
  const complete = [await accept(), await accept()];
  await workBatches(registry);
  expect(await scans()).toEqual([0, 0, 0]);
  const repeated = items(3);
  const open: [string, number][] = [
    [await accept(repeated), 3],
    [await accept(items(5)), 5],
  ];
  // Now the pending items are single items, items of a chunk, and items that a later batch repeats.
  const leased = await leaseNextChunks(registry.admit.sql, 3);
  await splitChunks(registry.admit.sql, leased?.chunkIds ?? []);
  open.push([await accept(repeated.slice(0, 2)), 2]);
  const expected = [...complete.map((id) => [id, 0]), ...open];

  const pages = async (limit: number): Promise<unknown[]> => {
    const found: [string, number][] = [];
    for (let after = `batch_${'0'.repeat(32)}`; ; after = found.at(-1)![0]) {
      const page = await batchesFrom(db.sql, after, limit);
      if (page.length === 0) return found;
      found.push(...page.map(({ batchId, waiting }): [string, number] => [batchId, waiting]));
    }
  };
  for (const limit of [1, 2, 100]) expect(await pages(limit)).toEqual(expected.sort());
  expect(await scans()).toEqual([1, 1, 1]);
});
