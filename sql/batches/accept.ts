import { arrayOf, batchIdOf, hexOf } from '../db/columns.js';
import type { Db, Pool, Transaction } from '../db/transaction.js';
import {
  findExistingProofIds,
  insertIntake,
  pinPolicy,
  type IntakeRow,
  type Lane,
  type PinnedPolicy,
} from '../admissions/accept.js';
import { asTenants } from '../db/tenant-scope.js';

export interface BatchItem {
  index: number;
  proofId: string;
  lane: Lane;
  request: Uint8Array;
  /** Lower-case hex. */
  requestHash: string;
  fixtureRef: string | null;
}

export interface NewBatch {
  batchId: string;
  tenantNo: number;
  keyNo: number;
  /** The deduplication key of the batch: a hash of its items in order. */
  itemsHash: Uint8Array;
  /** The id of the HTTP request; the problems of its items carry it. */
  requestId: string;
  idempotencyKey: string | null;
  total: number;
  items: BatchItem[];
  /** The problems of the invalid items, as JSON, by index. */
  problems: ReadonlyMap<number, string>;
  /** The salts of the items, 32 bytes each, in order. */
  salts: Uint8Array;
}

/** Queue limits that hold after the batch is accepted. */
export interface Room {
  admissions: number;
  batches: number;
  own: number;
}

export type BatchOutcome =
  | { outcome: 'accepted'; batchId: string; awaited: number }
  | { outcome: 'repeat'; batchId: string }
  | { outcome: 'idempotency_conflict' }
  | { outcome: 'no_room' };

/** The request type number of batches in the table of idempotency keys. */
const BATCHES = 3;
/** Items of one chunk, as many as a job may carry: a chunk costs about twelve statements and a commit. */
export const CHUNK_ITEMS = 1_000;
const ROWS_PER_STATEMENT = 1_000;

class BatchRejected extends Error {
  constructor(readonly outcome: BatchOutcome) {
    super(outcome.outcome);
  }
}

/**
 * Stores a batch in one transaction: its admissions, the problems of its invalid items, its counts
 * and its chunks.
 *
 * The deduplication key is the tenant and the items in order. A repeat returns the first batch; a
 * concurrent repeat waits for it. Its admissions are deduplicated like single ones.
 *
 * @throws PolicyMissingError when no policy set is active
 * @throws DatabaseUnavailableError
 */
export async function acceptBatch(sql: Pool, batch: NewBatch, room: Room): Promise<BatchOutcome> {
  try {
    return await asTenants(sql, [batch.tenantNo], (tx) => accept(tx, batch, room));
  } catch (error) {
    if (error instanceof BatchRejected) return error.outcome;
    throw error;
  }
}

async function accept(tx: Transaction, batch: NewBatch, room: Room): Promise<BatchOutcome> {
  if (!(await bindKey(tx, batch))) return { outcome: 'idempotency_conflict' };
  const pins = await pinPolicy(tx);
  const first = await insertBatch(tx, batch, pins.at);
  if (first !== null) return { outcome: 'repeat', batchId: first };
  await requireRoom(tx, batch, room);

  const pointing = await insertAdmissions(tx, batch, pins);
  const fresh = pointing.admissions.filter((one) => one.isNew);
  await insertPending(tx, batch.batchId, fresh, pins.at);
  const before = pointing.admissions.filter((one) => !one.isNew);
  const earlier = await insertWatches(tx, batch, before);
  const awaited = fresh.reduce((sum, { items }) => sum + items, 0) + earlier.pending;
  await insertParts(tx, batch, pointing);
  const replayed = pointing.isReplay.filter(Boolean).length;
  await tx`
    insert into svc.batch_progress (batch_id, tenant_no, awaited, pending, admitted, denied, refused,
      invalid, replayed, completed_at)
    values (${hexOf(batch.batchId)}, ${batch.tenantNo}, ${awaited}, ${awaited},
      ${earlier.admitted}, ${earlier.denied}, 0, ${batch.problems.size}, ${replayed},
      ${awaited === 0 ? pins.at : null})`;
  return { outcome: 'accepted', batchId: batch.batchId, awaited };
}

async function bindKey(tx: Transaction, batch: NewBatch): Promise<boolean> {
  const { tenantNo, idempotencyKey: key, itemsHash } = batch;
  if (key === null) return true;
  await tx`
    insert into svc.idempotency_key (tenant_no, lane, key, request_hash)
    values (${tenantNo}, ${BATCHES}, ${key}, ${itemsHash}) on conflict do nothing`;
  const [bound] = await tx<{ hash: Buffer }[]>`
    select request_hash as hash from svc.idempotency_key
    where tenant_no = ${tenantNo} and lane = ${BATCHES} and key = ${key}`;
  return bound?.hash.equals(itemsHash) === true;
}

/** Null, or the id of the existing batch with these items. */
async function insertBatch(tx: Transaction, batch: NewBatch, at: Date): Promise<string | null> {
  const { itemsHash } = batch;
  const inserted = await tx`
    insert into svc.batch (batch_id, tenant_no, key_no, items_hash, total, request_id, accepted_at)
    values (${hexOf(batch.batchId)}, ${batch.tenantNo}, ${batch.keyNo}, ${itemsHash},
      ${batch.total}, ${batch.requestId}, ${at})
    on conflict (tenant_no, items_hash) do nothing`;
  if (inserted.count > 0) return null;
  const [first] = await tx<{ id: string }[]>`
    select batch_id as id from svc.batch
    where tenant_no = ${batch.tenantNo} and items_hash = ${itemsHash}`;
  if (first === undefined) throw new Error('a conflicting batch was not found');
  return batchIdOf(first.id);
}

async function requireRoom(tx: Transaction, batch: NewBatch, room: Room): Promise<void> {
  const [depth] = await tx<[{ admissions: number; everybodys: number; own: number }]>`
    select svc.pending_depth(${room.admissions}) as admissions, b.everybodys, b.own
    from svc.batch_pending(${batch.tenantNo}) b`;
  const { length } = batch.items;
  const fits =
    depth.admissions + length <= room.admissions &&
    depth.everybodys + length <= room.batches &&
    depth.own + length <= room.own;
  // Rolls back the key and the batch.
  if (!fits && length > 0) throw new BatchRejected({ outcome: 'no_room' });
}

/** One admission for all equal items. */
interface Admission {
  first: BatchItem;
  items: number;
  proofId: string;
  isNew: boolean;
}

interface ItemAdmissions {
  admissions: Admission[];
  of: (Admission | undefined)[];
  /** An earlier admission answers the item. */
  isReplay: boolean[];
}

/** All insert in one order, so that waits for a neighbour's unique key cannot deadlock. */
const byDeduplicationKey = ({ first: a }: Admission, { first: b }: Admission): number =>
  a.lane - b.lane || (a.requestHash < b.requestHash ? -1 : a.requestHash > b.requestHash ? 1 : 0);

async function insertAdmissions(
  tx: Transaction,
  batch: NewBatch,
  pins: PinnedPolicy,
): Promise<ItemAdmissions> {
  const pointing = admissionsOf(batch);
  let open = pointing.admissions;
  while (open.length > 0) {
    const inTheWay: Admission[] = [];
    for (const some of slices(open, ROWS_PER_STATEMENT)) {
      const rows = some.map(({ first }) => intakeRow(batch, first));
      const inserted = await insertIntake(tx, rows, pins);
      for (const one of some) {
        one.isNew = inserted.has(one.proofId);
        if (!one.isNew) inTheWay.push(one);
      }
    }
    open = [];
    for (const some of slices(inTheWay, ROWS_PER_STATEMENT)) {
      const rows = some.map(({ first }) => intakeRow(batch, first));
      const proofIds = await findExistingProofIds(tx, rows);
      some.forEach((one, at) => {
        const proofId = proofIds[at] ?? null;
        // An admission that was rejected meanwhile has released its deduplication key: try again.
        if (proofId === null) open.push(one);
        else one.proofId = proofId;
      });
    }
  }
  batch.items.forEach((item) => {
    const admission = pointing.of[item.index];
    pointing.isReplay[item.index] = admission?.isNew !== true || admission.first !== item;
  });
  return pointing;
}

function admissionsOf({ items, total }: NewBatch): ItemAdmissions {
  const known = new Map<string, Admission>();
  const of = new Array<Admission | undefined>(total).fill(undefined);
  for (const item of items) {
    const identity = item.requestHash + String(item.lane);
    let admission = known.get(identity);
    if (admission === undefined) {
      admission = { first: item, items: 0, proofId: item.proofId, isNew: false };
      known.set(identity, admission);
    }
    admission.items += 1;
    of[item.index] = admission;
  }
  const admissions = [...known.values()].sort(byDeduplicationKey);
  return { admissions, of, isReplay: new Array<boolean>(total).fill(false) };
}

function intakeRow({ tenantNo, keyNo, salts }: NewBatch, item: BatchItem): IntakeRow {
  const salt = salts.subarray(item.index * 32, item.index * 32 + 32);
  return { ...item, requestHash: Buffer.from(item.requestHash, 'hex'), tenantNo, keyNo, salt };
}

async function insertPending(
  tx: Transaction,
  batchId: string,
  fresh: readonly Admission[],
  at: Date,
): Promise<void> {
  for (const rows of slices(fresh, ROWS_PER_STATEMENT)) {
    await tx`
      insert into svc.intake_pending (proof_id, accepted_at, batch_id, batch_items)
      select proof_id, ${at}, ${hexOf(batchId)}, items
      from unnest(${arrayOf(rows.map(({ proofId }) => proofId))}::uuid[],
        ${arrayOf(rows.map(({ items }) => items))}::smallint[]) as fresh(proof_id, items)`;
  }
}

/**
 * Items that point to earlier admissions: those with an outcome count at once, pending ones get a
 * watch row. `resolveDuplicateItems` counts an admission that gets its outcome concurrently.
 */
async function insertWatches(
  tx: Transaction,
  { batchId, tenantNo }: NewBatch,
  before: readonly Admission[],
): Promise<{ pending: number; admitted: number; denied: number }> {
  const counts = { pending: 0, admitted: 0, denied: 0 };
  for (const rows of slices(before, ROWS_PER_STATEMENT)) {
    const effects = await effectsOf(tx, tenantNo, rows);
    const watched: Admission[] = [];
    for (const one of rows) {
      const effect = effects.get(one.proofId) ?? 'pending';
      if (effect === 'pending') watched.push(one);
      counts[effect] += one.items;
    }
    if (watched.length === 0) continue;
    await tx`
      insert into svc.batch_watch (proof_id, batch_id, items)
      select proof_id, ${hexOf(batchId)}, items
      from unnest(${arrayOf(watched.map(({ proofId }) => proofId))}::uuid[],
        ${arrayOf(watched.map(({ items }) => items))}::smallint[]) as watched(proof_id, items)`;
  }
  return counts;
}

async function effectsOf(
  tx: Db,
  tenantNo: number,
  admissions: readonly Admission[],
): Promise<Map<string, 'admitted' | 'denied'>> {
  const rows = await tx<{ id: string; effect: 'admitted' | 'denied' }[]>`
    select proof_id as id, case effect when 'ADMIT' then 'admitted' else 'denied' end as effect
    from svc.proof where tenant_no = ${tenantNo}
      and proof_id = any(${arrayOf(admissions.map(({ proofId }) => proofId))}::uuid[])`;
  return new Map(rows.map(({ id, effect }) => [id, effect]));
}

/** Inserts the items in order, and a lease row for each chunk with pending admissions. */
async function insertParts(
  tx: Transaction,
  { batchId, tenantNo, total, problems }: NewBatch,
  { of, isReplay }: ItemAdmissions,
): Promise<void> {
  for (let start = 0; start < total; start += CHUNK_ITEMS) {
    const end = Math.min(start + CHUNK_ITEMS, total);
    const proofIds = of.slice(start, end).map((one) => one?.proofId ?? 'NULL');
    const replayed = isReplay.slice(start, end);
    const wrong: string[] = [];
    for (let index = start; index < end; index += 1) {
      const problem = problems.get(index);
      if (problem !== undefined) wrong.push(`"${String(index)}":${problem}`);
    }
    await tx`
      insert into svc.batch_part (batch_id, first_index, proof_ids, replayed, problems)
      values (${hexOf(batchId)}, ${start}, ${arrayOf(proofIds)}::uuid[],
        ${replayed.includes(true) ? arrayOf(replayed.map(String)) : null}::boolean[],
        ${wrong.length > 0 ? Buffer.from(`{${wrong.join(',')}}`) : null})`;
    const fresh = proofIds.filter((id, at) => id !== 'NULL' && replayed[at] === false).length;
    if (fresh === 0) continue;
    await tx`
      insert into svc.batch_turn (batch_id, first_index, tenant_no, items)
      values (${hexOf(batchId)}, ${start}, ${tenantNo}, ${fresh})`;
  }
}

function slices<T>(all: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, i) =>
    all.slice(i * size, (i + 1) * size),
  );
}
