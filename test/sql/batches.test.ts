import { randomBytes } from 'node:crypto';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { fromHex, toHex } from '#protocol/bytes';
import { CHUNK_ITEMS, type BatchItem } from '#sql/batches/accept';
import { batchOutcomes, readBatch } from '#sql/batches/read';
import {
  countOutcomes,
  leaseNextChunk,
  requeueExpiredLeases,
  resolveDuplicateItems,
} from '#sql/batches/chunks';
import { acceptIntake } from '#sql/admissions/intake';
import { pendingDepth, pendingOlderThan } from '#sql/admissions/outcomes';
import { transaction } from '#sql/db/transaction';
import { processAdmissions } from '#workers/admit/process';
import {
  acceptedBatch,
  batchItem,
  storeBatch,
  type BatchOptions,
} from '../fixtures/batch-items.js';
import { beforeRow } from '../fixtures/database.js';
import { workBatches } from '../fixtures/engine.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');
/** Three tenants; the first is the registry's own. */
let tenants: number[];

beforeAll(async () => {
  tenants = [
    registry.tenantNo,
    await registry.addTenant('second'),
    await registry.addTenant('third'),
  ];
});
afterEach(async () => {
  await workBatches(registry);
  await requeueExpiredLeases(registry.admit.sql, -60_000);
}, 120_000);

const hexOf = (id: string): string => id.replace('batch_', '');
const newId = (): string => registry.item().proofId;

function items(count: number, start = 0): BatchItem[] {
  return Array.from({ length: count }, (_, i) => batchItem(registry.item(), start + i));
}

const accept = (some: BatchItem[], options?: BatchOptions) => storeBatch(registry, some, options);

async function accepted(some: BatchItem[], options?: BatchOptions): Promise<string> {
  const outcome = await accept(some, options);
  if (outcome.outcome !== 'accepted') throw new Error(outcome.outcome);
  return outcome.batchId;
}

/** The tenant and batch of each lease, until no chunk is left to lease. */
async function turns(): Promise<{ tenant: number; size: number }[]> {
  const found: { tenant: number; size: number }[] = [];
  for (;;) {
    const ids = await leaseNextChunk(registry.admit.sql, CHUNK_ITEMS);
    if (ids === null) return found;
    const [row] = await db.sql<{ no: number }[]>`
      select tenant_no as no from svc.intake where proof_id = ${ids[0] ?? newId()}::uuid`;
    found.push({ tenant: row?.no ?? 0, size: ids.length });
  }
}

const countIn = async (table: string): Promise<number> =>
  (await db.sql.unsafe<{ n: number }[]>(`select count(*)::int as n from svc.${table}`))[0]!.n;

describe('acceptBatch', () => {
  it('stores a batch completely or not at all', async () => {
    const tables = [
      'batch',
      'batch_part',
      'batch_progress',
      'batch_turn',
      'intake',
      'intake_pending',
      'idempotency_key',
    ];
    const counts = async () => Promise.all(tables.map(countIn));
    const before = await counts();
    // Only the last insert fails.
    const remove = await beforeRow(
      db,
      'insert on svc.batch_progress',
      `raise exception 'in the way';`,
    );
    const some = items(1_200);
    const failing = accept(some, { idempotencyKey: 'of-a-failed-batch' });
    await expect(failing).rejects.toThrow(/in the way/);
    expect(await counts()).toEqual(before);
    await remove();
    expect(await accept(some, { idempotencyKey: 'of-a-failed-batch' })).toMatchObject({
      outcome: 'accepted',
    });
  });

  it('does not deadlock when concurrent batches contain equal items in different orders', async () => {
    // Every insert is slow, so each batch holds its first row when it inserts its second.
    const remove = await beforeRow(db, 'insert on svc.intake', 'perform pg_sleep(0.1);');
    const some = items(4);
    const at = (order: BatchItem[]) =>
      order.map((item, index) => ({ ...item, index, proofId: newId() }));
    const outcomes = await Promise.all([
      accept(at(some)),
      accept(at([...some].reverse())),
      accept(at([...some.slice(2), ...some.slice(0, 2)])),
      acceptIntake(
        registry.engine,
        some.map((item) => ({
          ...item,
          requestHash: fromHex(item.requestHash),
          proofId: newId(),
          tenantNo: registry.tenantNo,
          salt: randomBytes(32),
          idempotencyKey: null,
          keyNo: null,
        })),
      ),
    ]).finally(remove);
    // Processes the single admissions, for which the next batch would otherwise wait.
    await processAdmissions(
      registry.admit,
      some.map((_, i) => (outcomes[3][i] as { proofId: string }).proofId),
    );
    expect(outcomes.slice(0, 3).map((one) => 'outcome' in one && one.outcome)).toEqual([
      'accepted',
      'accepted',
      'accepted',
    ]);
    const [row] = await db.sql<{ n: number }[]>`
      select count(*)::int as n from svc.intake
      where request_hash = any(select unnest(${db.sql.array(
        some.map(({ requestHash }) => Buffer.from(requestHash, 'hex')),
        1001,
      )}))`;
    expect(row?.n).toBe(4);
  });

  it('keeps the order of the items, with the problems of invalid items', async () => {
    const total = CHUNK_ITEMS + 7;
    const good = items(total - 2).map((item, at) => ({ ...item, index: at + (at >= 3 ? 1 : 0) }));
    const problems = new Map([
      [3, '{"code":"invalid_field","detail":"third"}'],
      [total - 1, '{"code":"missing_field","detail":"last"}'],
    ]);
    const batchId = await accepted(good, { problems });
    const found = await batchOutcomes(registry.engine, registry.tenantNo, batchId, 0, total);
    expect(found?.items.map(({ index }) => index)).toEqual(
      Array.from({ length: total }, (_, i) => i),
    );
    expect(found?.items.filter(({ state }) => state === 'invalid')).toEqual([
      { index: 3, state: 'invalid', problem: { code: 'invalid_field', detail: 'third' } },
      { index: total - 1, state: 'invalid', problem: { code: 'missing_field', detail: 'last' } },
    ]);
    const ids = new Map(good.map(({ index, proofId }) => [index, proofId]));
    for (const item of found?.items ?? []) {
      if (item.state === 'accepted') expect(item.proofId).toBe(ids.get(item.index));
    }
    const across = await batchOutcomes(
      registry.engine,
      registry.tenantNo,
      batchId,
      CHUNK_ITEMS - 2,
      4,
    );
    expect(across?.items.map(({ index }) => index)).toEqual(
      [-2, -1, 0, 1].map((n) => CHUNK_ITEMS + n),
    );
    expect(await batchOutcomes(registry.engine, tenants[1]!, batchId, 0, 9)).toBeNull();
  });
});

describe('batch progress', () => {
  it('only grows: the database rejects an outcome that is counted twice, lost or undone', async () => {
    const batchId = await accepted(items(3));
    const worker = registry.admit.sql;
    const share = { batchId, items: 2 };
    const count = (outcome: 'admitted' | 'denied', n = share.items) =>
      transaction(worker, (tx) => countOutcomes(tx, [{ share: { ...share, items: n }, outcome }]));
    await count('admitted');
    await expect(count('denied')).rejects.toThrow(/check constraint|may only advance/);
    const uuid = hexOf(batchId);
    await expect(worker`
      update svc.batch_progress set pending = 0, completed_at = now() where batch_id = ${uuid}::uuid`).rejects.toThrow(
      /may only advance/,
    );
    await expect(worker`
      update svc.batch_progress set admitted = 0, pending = 3 where batch_id = ${uuid}::uuid`).rejects.toThrow(
      /may only advance/,
    );
    await count('denied', 1);
    const done = await readBatch(registry.engine, registry.tenantNo, batchId);
    expect(done).toMatchObject({ admitted: 2, denied: 1, pending: 0 });
    expect(done?.completedAt).not.toBeNull();
    await db.sql`delete from svc.intake_pending where batch_id = ${uuid}::uuid`;
    await db.sql`delete from svc.batch_turn where batch_id = ${uuid}::uuid`;
    for (const statement of [
      'update svc.batch set total = 1',
      'delete from svc.batch_part',
      'delete from svc.batch_progress',
      'truncate svc.batch cascade',
    ]) {
      await expect(db.sql.unsafe(statement)).rejects.toThrow(/append-only/);
    }
  });

  it('is updated in the transaction that commits the outcomes', async () => {
    const batchId = await accepted(items(4));
    const ids = (await leaseNextChunk(registry.admit.sql, CHUNK_ITEMS)) ?? [];
    const progress = () => readBatch(registry.engine, registry.tenantNo, batchId);
    await processAdmissions(registry.admit, ids.slice(0, 1));
    expect(await progress()).toMatchObject({ admitted: 1, pending: 3 });
    // Counts these ids again, together with the next.
    await processAdmissions(registry.admit, ids.slice(0, 2));
    expect(await progress()).toMatchObject({ admitted: 2, pending: 2 });
    await processAdmissions({ ...registry.admit, admissionsPaused: true }, ids.slice(2));
    expect(await progress()).toMatchObject({ admitted: 2, refused: 2, pending: 0 });
  });

  it('includes a duplicate item when the earlier admission gets its outcome', async () => {
    const item = registry.item();
    await acceptIntake(registry.engine, [item]);
    const requestHash = toHex(item.requestHash);
    const pointing = (): BatchItem[] => [
      { ...item, requestHash, index: 0, proofId: newId() },
      { ...item, requestHash, index: 1, proofId: newId() },
      ...items(1, 2),
    ];
    const batches = [await accepted(pointing()), await accepted(pointing())];
    expect((await resolveDuplicateItems(registry.admit.sql, 100)).settled).toBe(0);
    await processAdmissions(registry.admit, [item.proofId]);
    // Counted in pages and by two concurrent callers, of which only one counts a row.
    const [one, other] = await Promise.all([
      resolveDuplicateItems(registry.admit.sql, 1),
      resolveDuplicateItems(registry.admit.sql, 100),
    ]);
    const rest = await resolveDuplicateItems(registry.admit.sql, 100, one.next);
    expect(one.settled + other.settled + rest.settled).toBe(2);
    for (const id of batches) {
      expect(await readBatch(registry.engine, registry.tenantNo, id)).toMatchObject({
        admitted: 2,
        pending: 1,
      });
    }
    expect(await countIn('batch_watch')).toBe(0);
  });
});

describe('chunk leases', () => {
  it('alternate between tenants, for any order of arrival and number of items', async () => {
    const [a = 0, b = 0, c = 0] = tenants;
    await accepted(items(CHUNK_ITEMS * 4));
    await accepted(items(CHUNK_ITEMS * 2));
    await acceptedBatch(registry, CHUNK_ITEMS * 2, 'second');
    const first = await leaseNextChunk(registry.admit.sql, CHUNK_ITEMS);
    expect(first).toHaveLength(CHUNK_ITEMS);
    // The chunks of a new tenant come next, and then wait in rotation.
    await acceptedBatch(registry, CHUNK_ITEMS * 3, 'third');
    const order = (await turns()).map(({ tenant }) => tenant);
    expect(order).toEqual([b, c, a, b, c, a, c, a, a, a]);
  });

  it('combine small batches of a tenant up to the size of a chunk', async () => {
    for (const size of [3, 4, CHUNK_ITEMS - 2, 5]) await accepted(items(size));
    expect((await turns()).map(({ size }) => size)).toEqual([7, CHUNK_ITEMS - 2, 5]);
  });

  it('give each chunk to one dispatcher when several run', async () => {
    await accepted(items(CHUNK_ITEMS * 4));
    const all = await Promise.all(
      Array.from({ length: 6 }, () => leaseNextChunk(registry.admit.sql, CHUNK_ITEMS)),
    );
    const ids = all.flatMap((one) => one ?? []);
    expect(ids).toHaveLength(CHUNK_ITEMS * 4);
    expect(new Set(ids).size).toBe(ids.length);
  });

  it('are given again while admissions are pending, and end when all have outcomes', async () => {
    const some = items(CHUNK_ITEMS + 5);
    await accepted(some);
    await leaseNextChunk(registry.admit.sql, CHUNK_ITEMS);
    const second = (await leaseNextChunk(registry.admit.sql, CHUNK_ITEMS)) ?? [];
    // No lease is old enough yet to be given again.
    expect(await requeueExpiredLeases(registry.admit.sql, 60_000)).toEqual({ over: 0, again: 0 });
    await processAdmissions(registry.admit, second);
    expect(await requeueExpiredLeases(registry.admit.sql, 0)).toEqual({ over: 1, again: 1 });
    // A chunk that was leased before the clock was set back, and then lost.
    expect(await leaseNextChunk(registry.admit.sql, CHUNK_ITEMS)).toHaveLength(CHUNK_ITEMS);
    await db.sql`update svc.batch_turn set handed_at = handed_at + interval '1 hour'`;
    expect(await requeueExpiredLeases(registry.admit.sql, 60_000)).toEqual({ over: 0, again: 1 });
    const again = await leaseNextChunk(registry.admit.sql, CHUNK_ITEMS);
    expect(again).toHaveLength(CHUNK_ITEMS);
    await processAdmissions(registry.admit, again!.slice(0, -50));
    await requeueExpiredLeases(registry.admit.sql, 0);
    expect(await leaseNextChunk(registry.admit.sql, CHUNK_ITEMS)).toHaveLength(50);
    expect(await leaseNextChunk(registry.admit.sql, CHUNK_ITEMS)).toBeNull();
  });

  it('recover batch items, which the requeue of single admissions skips', async () => {
    await db.sql`delete from svc.intake_pending`;
    await accepted(items(30));
    const alone = registry.item();
    await acceptIntake(registry.engine, [alone]);
    const swept = await pendingOlderThan(registry.admit.sql, -60_000, 10);
    expect(swept.map(({ proofId }) => proofId)).toEqual([alone.proofId]);
    expect(await pendingDepth(registry.engine, 100)).toBe(31);
  });
});
