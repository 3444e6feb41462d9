import { randomBytes } from 'node:crypto';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { fromHex, toHex } from '#protocol/bytes';
import { CHUNK_ITEMS, type BatchItem } from '#sql/batches/accept';
import { readBatch } from '#sql/batches/read';
import {
  type BatchOutcomeCount,
  countOutcomes,
  leaseNextChunks,
  requeueExpiredLeases,
  resolveDuplicateItems,
  splitChunks,
} from '#sql/batches/chunks';
import { claimPending, loadChunks } from '#sql/admissions/pending';
import { acceptIntake } from '#sql/admissions/intake';
import { asTenants, transaction } from '#sql/db/transaction';
import { admissionsFrom } from '#sql/fsck/admissions';
import { processAdmissions, processChunks } from '#workers/admit/process';
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
/** Three tenants; the first is the default tenant of the test registry. */
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

const lease = () => leaseNextChunks(registry.admit.sql, CHUNK_ITEMS);

/** The tenant and the size of each lease, until no chunk is left to lease. */
async function leases(): Promise<{ tenant: number; size: number }[]> {
  const found: { tenant: number; size: number }[] = [];
  for (let next = await lease(); next !== null; next = await lease()) {
    const [row] = await db.sql<{ no: number }[]>`
      select tenant_no as no from svc.chunk_pending where chunk_id = ${next.chunkIds[0]!}::uuid`;
    found.push({ tenant: row?.no ?? 0, size: next.admissions });
    // Claims delete the pending rows; the order of the tenants must not change.
    await processChunks(registry.admit, next.chunkIds);
  }
  return found;
}

const countIn = async (table: string): Promise<number> =>
  (await db.sql.unsafe<{ n: number }[]>(`select count(*)::int as n from svc.${table}`))[0]!.n;

describe('acceptBatch', () => {
  it('stores a batch completely or not at all', async () => {
    const tables = 'batch batch_part batch_progress chunk_pending intake idempotency_key'.split(
      ' ',
    );
    const counts = () => Promise.all(tables.map(countIn));
    const before = await counts();
    // Only the last insert fails.
    const remove = await beforeRow(db, 'insert on svc.batch_progress', `raise exception 'full';`);
    const some = items(1_200);
    const acceptAll = () => accept(some, { idempotencyKey: 'of-a-failed-batch' });
    await expect(acceptAll()).rejects.toThrow(/^full$/);
    expect(await counts()).toEqual(before);
    await remove();
    expect(await acceptAll()).toMatchObject({ outcome: 'accepted' });
  });

  it('does not deadlock when concurrent batches contain equal items in different orders', async () => {
    // Every insert is slow, so each batch has inserted its first row before any batch inserts its
    // second.
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
          seed: randomBytes(32),
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
    const accepted = outcomes.slice(0, 3).map((one) => 'outcome' in one && one.outcome);
    expect(accepted).toEqual(Array(3).fill('accepted'));
    const hashes = some.map(({ requestHash }) => Buffer.from(requestHash, 'hex'));
    const [row] = await db.sql<{ n: number }[]>`
      select count(*)::int as n from svc.intake
      where request_hash = any(select unnest(${db.sql.array(hashes, 1001)}))`;
    expect(row?.n).toBe(4);
  });
});

describe('batch progress', () => {
  it('only grows: the database rejects a decision that is counted twice, lost or undone', async () => {
    const batchId = await accepted(items(6));
    const worker = registry.admit.sql;
    const batch = { batchId, items: 2 };
    const count = (outcome: BatchOutcomeCount['outcome'], n = batch.items) =>
      transaction(worker, (tx) => countOutcomes(tx, [{ batch: { ...batch, items: n }, outcome }]));
    await count('admitted');
    await expect(count('denied', 5)).rejects.toThrow(/check constraint|may only advance/);
    const uuid = batchId.replace('batch_', '');
    await expect(worker`
      update svc.batch_progress set pending = 0, completed_at = now() where batch_id = ${uuid}::uuid`).rejects.toThrow(
      /may only advance/,
    );
    await count('denied', 1);
    await count('refused', 1);
    await count('approval_required', 1);
    for (const undone of ['admitted', 'denied', 'refused', 'approval_required']) {
      const less = worker.unsafe(
        `update svc.batch_progress set ${undone} = ${undone} - 1, pending = pending + 1 where batch_id = '${uuid}'`,
      );
      await expect(less).rejects.toThrow(/may only advance/);
    }
    await count('admitted', 1);
    const done = await readBatch(registry.engine, registry.tenantNo, batchId);
    expect(done).toMatchObject({ admitted: 3, denied: 1, refused: 1, pending: 0 });
    expect(done?.completedAt).not.toBeNull();
    const completed = worker`
      update svc.batch_progress set completed_at = now() where batch_id = ${uuid}::uuid`;
    await expect(completed).rejects.toThrow(/may only advance/);
    await db.sql`delete from svc.chunk_pending where batch_id = ${uuid}::uuid`;
    await expect(db.sql`update svc.batch set total = 1`).rejects.toThrow(/append-only/);
  });

  it('is updated in the transaction that decides the items', async () => {
    const batchId = await accepted(items(4));
    const progress = () => readBatch(registry.engine, registry.tenantNo, batchId);
    const ids = await splitChunks(registry.admit.sql, (await lease())?.chunkIds ?? []);
    await processAdmissions(registry.admit, ids.slice(0, 1));
    expect(await progress()).toMatchObject({ admitted: 1, pending: 3 });
    // Processes the first id again, together with the next id.
    await processAdmissions(registry.admit, ids.slice(0, 2));
    expect(await progress()).toMatchObject({ admitted: 2, pending: 2 });
    await processAdmissions({ ...registry.admit, admissionsPaused: true }, ids.slice(2));
    expect(await progress()).toMatchObject({ admitted: 2, refused: 2, pending: 0 });
  });

  it('starts over in a new batch when the same items are sent again after some were rejected', async () => {
    const [itemsHash, some] = [randomBytes(32), items(3)];
    const problems = new Map([[3, '{"code":"parent_not_found","detail":""}']]);
    const invalid = { itemsHash, problems };
    const first = await accepted(some, invalid);
    const ids = await splitChunks(registry.admit.sql, (await lease())?.chunkIds ?? []);
    await processAdmissions(registry.admit, ids.slice(0, 1));
    const again = () => some.map((one) => ({ ...one, proofId: newId() }));
    expect(await accept(again(), invalid)).toEqual({ outcome: 'repeat', batchId: first });
    await processAdmissions({ ...registry.admit, admissionsPaused: true }, ids.slice(1));

    const second = await accept(again(), invalid);
    expect(second).toMatchObject({ outcome: 'accepted', awaited: 2 });
    await workBatches(registry);
    expect(await accept(again(), invalid)).toEqual({
      ...second,
      outcome: 'repeat',
      awaited: undefined,
    });
    const third = await accepted([...again(), ...items(1, 3)], { itemsHash });
    await workBatches(registry);
    expect(await readBatch(registry.engine, registry.tenantNo, third)).toMatchObject({
      admitted: 4,
      replayed: 3,
    });
    const hashes = some.map(({ requestHash }) => requestHash).join();
    const [row] = await db.sql<{ proofs: number }[]>`
      select count(*)::int as proofs from svc.log_entry join svc.intake using (proof_id)
      where encode(request_hash, 'hex') = any(string_to_array(${hashes}, ','))`;
    expect(row?.proofs).toBe(3);
  });

  it('counts a duplicate item when the earlier admission is decided', async () => {
    const item = registry.item();
    await acceptIntake(registry.engine, [item]);
    const requestHash = toHex(item.requestHash);
    const pointing = (): BatchItem[] => [
      { ...item, requestHash, index: 0, proofId: newId() },
      { ...item, requestHash, index: 1, proofId: newId() },
      ...items(1, 2),
    ];
    const batches = [await accepted(pointing()), await accepted(pointing())];
    expect((await resolveDuplicateItems(registry.admit.sql, 100)).counted).toBe(0);
    await processAdmissions(registry.admit, [item.proofId]);
    // Counts the items in pages and by two concurrent callers; only one caller counts each row.
    const [one, other] = await Promise.all([
      resolveDuplicateItems(registry.admit.sql, 1),
      resolveDuplicateItems(registry.admit.sql, 100),
    ]);
    const rest = await resolveDuplicateItems(registry.admit.sql, 100, one.next);
    expect(one.counted + other.counted + rest.counted).toBe(2);
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
    await db.sql`delete from svc.chunk_lease`;
    await accepted(items(CHUNK_ITEMS * 4));
    await accepted(items(CHUNK_ITEMS * 2));
    await acceptedBatch(registry, CHUNK_ITEMS * 2, 'second');
    const first = await lease();
    expect(first?.admissions).toBe(CHUNK_ITEMS);
    // The first chunk of a new tenant comes next; its other chunks wait in rotation.
    await acceptedBatch(registry, CHUNK_ITEMS * 3, 'third');
    const order = (await leases()).map(({ tenant }) => tenant);
    expect(order).toEqual([b, c, a, b, c, a, c, a, a, a]);
  });

  it('expire, and the chunk is leased again until its admissions are decided', async () => {
    await accepted(items(CHUNK_ITEMS + 5));
    const worker = registry.admit.sql;
    const first = (await lease())!;
    const second = (await lease())!;
    // No lease is older than a minute.
    expect(await requeueExpiredLeases(worker, 60_000)).toBe(0);
    await processChunks(registry.admit, second.chunkIds);
    expect(await requeueExpiredLeases(worker, 0)).toBe(1);
    // The chunk was leased before the clock was set back, and then lost.
    expect(await lease()).toEqual(first);
    await db.sql`update svc.chunk_pending set leased_at = leased_at + interval '1 hour'`;
    expect(await requeueExpiredLeases(worker, 60_000)).toBe(1);
    expect(await lease()).toEqual(first);
    await processChunks(registry.admit, first.chunkIds);
    expect(await requeueExpiredLeases(worker, 0)).toBe(0);
    expect(await lease()).toBeNull();
  });
});

describe('pending chunk', () => {
  const statesOf = async (ids: string[]) => {
    const found = await registry.readOutcomes(ids);
    return ids.map((id) => found.get(id)?.state);
  };

  it('yields one decision per admission when several workers process it at once', async () => {
    const some = items(20);
    const batchId = await accepted(some);
    const { chunkIds } = (await lease())!;
    await Promise.all(Array.from({ length: 3 }, () => processChunks(registry.admit, chunkIds)));
    expect(await readBatch(registry.engine, registry.tenantNo, batchId)).toMatchObject({
      admitted: 20,
      pending: 0,
    });
    // The admissions have no pending rows of their own, which a forged job could claim.
    expect(await statesOf(some.map(({ proofId }) => proofId))).not.toContain(undefined);
  });

  it('is not processed by jobs that name its admissions or an unknown chunk', async () => {
    const some = items(3);
    await accepted(some);
    const ids = some.map(({ proofId }) => proofId);
    await processAdmissions(registry.admit, ids);
    const first = (await lease())!.chunkIds;
    await processChunks(
      registry.admit,
      ids.filter((id) => !first.includes(id)),
    );
    expect(await statesOf(ids)).toEqual([undefined, undefined, undefined]);
  });

  it('is split when one of its admissions fails, and only that one is rejected', async () => {
    const some = items(4);
    const poison = { ...batchItem(registry.item({ action: 'POISON' }), 4) };
    const twice = { ...some[0]!, index: 5, proofId: newId() };
    const batchId = await accepted([...some, poison, twice]);
    const remove = await beforeRow(
      db,
      'insert on svc.log_entry',
      `if new.action = 'POISON' then raise exception 'poison'; end if;`,
    );
    await processChunks(registry.admit, (await lease())!.chunkIds);
    await remove();
    expect(await statesOf([...some, poison].map(({ proofId }) => proofId))).toEqual([
      ...some.map(() => 'proved'),
      'refused',
    ]);
    expect(await readBatch(registry.engine, registry.tenantNo, batchId)).toMatchObject({
      admitted: 5,
      refused: 1,
      pending: 0,
    });
  });

  it('does not include items that repeat a decided admission', async () => {
    const [decided, fresh] = items(2) as [BatchItem, BatchItem];
    await accepted([decided]);
    await workBatches(registry);
    await accepted([{ ...decided, proofId: newId() }, fresh]);
    const loaded = await loadChunks(registry.admit.sql, (await lease())!.chunkIds, 2);
    expect(loaded.map(({ proofId }) => proofId)).toEqual([fresh.proofId]);
    const found = await admissionsFrom(db.sql, decided.proofId, 10);
    const pending = found.filter(({ isPending }) => isPending).map(({ proofId }) => proofId);
    expect(pending).toEqual([fresh.proofId]);
  });

  it('stays pending while its policy set is unusable', async () => {
    await accepted(items(3));
    const { chunkIds } = (await lease())!;
    const policy = () => Promise.reject(new Error('unusable'));
    const failing = processChunks({ ...registry.admit, policy }, chunkIds);
    await expect(failing).rejects.toThrow(/3 of the group's admissions deferred/);
    expect(await countIn('intake_pending')).toBe(0);
    expect(await countIn('chunk_pending')).toBe(1);
  });

  it('is not claimed without all of its admissions', async () => {
    const some = items(3);
    await accepted(some);
    const loaded = await loadChunks(registry.admit.sql, (await lease())!.chunkIds, 3);
    const claiming = transaction(registry.admit.sql, (tx) => claimPending(tx, loaded.slice(1)));
    await expect(claiming).rejects.toThrow(/3 admissions, of which 2 were read/);
    expect(await countIn('chunk_pending')).toBe(1);
  });

  it('cannot be inserted after the transaction that stores its admissions', async () => {
    const batchId = await accepted(items(2));
    const [row] = await db.sql<object[]>`delete from svc.chunk_pending returning *`;
    const again = () =>
      asTenants(registry.engine, tenants, (tx) => tx`insert into svc.chunk_pending ${tx(row!)}`);
    await expect(again()).rejects.toThrow(/is not new/);
    await db.sql`alter table svc.chunk_pending disable trigger is_new`;
    await again();
    await db.sql`alter table svc.chunk_pending enable trigger is_new`;
    expect(await readBatch(registry.engine, registry.tenantNo, batchId)).toMatchObject({
      pending: 2,
    });
  });
});
