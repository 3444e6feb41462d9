import { decidedState, type DecidedState } from './chunks.js';
import { concat, fromHex } from '#protocol/bytes';
import { nativeSha256 } from '#runtime/crypto/node';
import { arrayOf, batchIdOf, fromUuid, hexOf, slices } from '../db/columns.js';
import { type Pool, type Transaction, asTenants } from '../db/transaction.js';
import {
  bindIdempotencyKeys,
  byUniqueKeys,
  insertOrFind,
  pinPolicy,
  repeatedWithOverlay,
  storeAdmissions,
  type IntakeRow,
  type IntakeItem,
  type PinnedPolicy,
} from '../admissions/intake.js';

export interface BatchItem extends Pick<
  IntakeItem,
  'proofId' | 'lane' | 'request' | 'fixtureRef' | 'run'
> {
  index: number;
  /** Lower-case hex. */
  requestHash: string;
}

export interface NewBatch {
  batchId: string;
  tenantNo: number;
  keyNo: number;
  /** The deduplication key of the batch: a hash of its items in order. */
  itemsHash: Uint8Array;
  /** The id of the HTTP request, which the problems of its items repeat. */
  requestId: string;
  idempotencyKey: string | null;
  total: number;
  items: BatchItem[];
  /** The problems of the invalid items, as JSON, by index. */
  problems: ReadonlyMap<number, string>;
  /** The seeds of the items, 32 bytes each, in order. */
  seeds: Uint8Array;
}

/** Limits of the queue, which this batch must not exceed. */
export interface QueueCapacity {
  admissions: number;
  batches: number;
  own: number;
}

export type BatchOutcome =
  | { outcome: 'accepted'; batchId: string; awaited: number }
  | { outcome: 'repeat'; batchId: string }
  | { outcome: 'idempotency_conflict' }
  /** `isTenantLimit`: the batch exceeds only the share of its tenant. */
  | { outcome: 'queue_full'; isTenantLimit: boolean }
  /** The batch is not stored, because other requests already have the run numbers of these items. */
  | { outcome: 'run_seq_taken'; indexes: number[] };

/** The `lane` of the idempotency keys of batches, which differs from every request type. */
const BATCHES = 3;
/**
 * Maximum number of items per chunk and per job, large because each chunk costs a dozen statements and a commit.
 */
export const CHUNK_ITEMS = 1_000;
const ROWS_PER_STATEMENT = 1_000;

class BatchRejected extends Error {
  constructor(readonly outcome: BatchOutcome) {
    super(outcome.outcome);
  }
}

/**
 * Stores a batch in one transaction: its admissions, the problems of its invalid items, its counts
 * and its chunks. The deduplication key is the tenant and the items in order. A repeat returns the
 * first batch, or a new batch if the first batch rejected items that may be accepted now; a
 * concurrent repeat waits for the first. The admissions of a batch are deduplicated like single
 * admissions.
 *
 * @throws PolicyMissingError when no policy set is active
 * @throws DatabaseUnavailableError
 */
export async function acceptBatch(
  sql: Pool,
  batch: NewBatch,
  capacity: QueueCapacity,
): Promise<BatchOutcome> {
  try {
    return await repeatedWithOverlay(() =>
      asTenants(sql, [batch.tenantNo], (tx) => accept(tx, batch, capacity), excludeErasures),
    );
  } catch (error) {
    if (error instanceof BatchRejected) return error.outcome;
    throw error;
  }
}

/**
 * Without this lock, an erasure would not see the hash of a concurrent batch that repeats the erased admission,
 * and could delete the hash of the batch that `insertBatch` then reads.
 */
async function excludeErasures(tx: Transaction): Promise<void> {
  await tx`lock table svc.idempotency_key in row exclusive mode`;
}

async function accept(
  tx: Transaction,
  batch: NewBatch,
  capacity: QueueCapacity,
): Promise<BatchOutcome> {
  const keyed = { ...batch, lane: BATCHES, requestHash: batch.itemsHash };
  const conflicts = await bindIdempotencyKeys(tx, [keyed]);
  if (conflicts.size > 0) return { outcome: 'idempotency_conflict' };
  const pins = await pinPolicy(tx);
  const first = await insertBatch(tx, batch, pins.at);
  if (first !== null) return { outcome: 'repeat', batchId: first };
  await requireCapacity(tx, batch, capacity);

  const stored = await insertAdmissions(tx, batch, pins);
  const fresh = stored.admissions.filter((one) => one.isNew);
  const before = stored.admissions.filter((one) => !one.isNew);
  const earlier = await insertWatches(tx, batch, before);
  const awaited = fresh.reduce((sum, { items }) => sum + items, 0) + earlier.pending;
  await insertChunks(tx, batch, stored, pins.at);
  const replayed = stored.isReplay.filter(Boolean).length;
  await tx`
    insert into svc.batch_progress (batch_id, tenant_no, awaited, pending, admitted, denied,
      approval_required, refused, invalid, replayed, completed_at)
    values (${hexOf(batch.batchId)}, ${batch.tenantNo}, ${awaited}, ${awaited},
      ${earlier.admitted}, ${earlier.denied}, ${earlier.approval_required}, 0, ${batch.problems.size}, ${replayed},
      ${awaited === 0 ? pins.at : null})`;
  return { outcome: 'accepted', batchId: batch.batchId, awaited };
}

/**
 * Inserts the batch and returns null, or returns the id of the existing batch with these items. A batch with
 * items that may be decided differently now gets a successor, whose key is derived from the items
 * and the id of the earlier batch.
 */
async function insertBatch(
  tx: Transaction,
  batch: NewBatch,
  at: Date,
  itemsHash = batch.itemsHash,
): Promise<string | null> {
  const inserted = await tx`
    insert into svc.batch (batch_id, tenant_no, key_no, items_hash, total, request_id, accepted_at)
    values (${hexOf(batch.batchId)}, ${batch.tenantNo}, ${batch.keyNo}, ${itemsHash},
      ${batch.total}, ${batch.requestId}, ${at})
    on conflict (tenant_no, items_hash) do nothing`;
  if (inserted.count > 0) return null;
  const [first] = await tx<{ id: string; refused: number; invalid: number; isDone: boolean }[]>`
    select batch_id as id, refused, invalid, completed_at is not null as "isDone"
    from svc.batch join svc.batch_progress using (batch_id)
    where batch.tenant_no = ${batch.tenantNo} and items_hash = ${itemsHash}`;
  const { id, invalid, isDone, refused } = first!;
  const canDiffer = refused > 0 || (invalid > 0 && (await wereInvalid(tx, id, batch.problems)));
  if (!isDone || !canDiffer) return batchIdOf(id);
  return insertBatch(tx, batch, at, nativeSha256(concat(itemsHash, fromHex(fromUuid(id)))));
}

/** Whether the stored batch has invalid items that are now valid, for example because a parent was admitted. */
async function wereInvalid(
  tx: Transaction,
  batchId: string,
  problems: NewBatch['problems'],
): Promise<boolean> {
  const parts = await tx<{ problems: Buffer }[]>`
    select problems from svc.batch_part where batch_id = ${batchId}::uuid and problems is not null`;
  const indexes = parts.flatMap((part) =>
    Object.keys(JSON.parse(part.problems.toString()) as object),
  );
  return indexes.some((index) => !problems.has(Number(index)));
}

async function requireCapacity(
  tx: Transaction,
  batch: NewBatch,
  capacity: QueueCapacity,
): Promise<void> {
  const [depth] = await tx<[{ admissions: number; everybodys: number; own: number }]>`
    select svc.pending_depth(${capacity.admissions}) as admissions, b.everybodys, b.own
    from svc.batch_pending(${batch.tenantNo}) b`;
  const { length } = batch.items;
  const fitsQueue =
    depth.admissions + length <= capacity.admissions &&
    depth.everybodys + length <= capacity.batches;
  const fits = fitsQueue && depth.own + length <= capacity.own;
  // Thrown to roll back the batch and its deduplication key.
  if (!fits && length > 0)
    throw new BatchRejected({ outcome: 'queue_full', isTenantLimit: fitsQueue });
}

/** An admission, which all equal items of the batch share. */
interface Admission {
  first: BatchItem;
  row: IntakeRow;
  items: number;
  proofId: string;
  isNew: boolean;
}

interface ItemAdmissions {
  admissions: Admission[];
  of: (Admission | undefined)[];
  /** For each item, whether an earlier admission provides its result. */
  isReplay: boolean[];
}

async function insertAdmissions(
  tx: Transaction,
  batch: NewBatch,
  pins: PinnedPolicy,
): Promise<ItemAdmissions> {
  const result = admissionsOf(batch);
  const conflicts = new Set<Admission | undefined>();
  for (const some of slices(result.admissions, ROWS_PER_STATEMENT)) {
    const rows = some.map(({ row }) => row);
    const found = await insertOrFind(tx, rows, (open) =>
      storeAdmissions(tx, open, { policy: pins, singly: false }),
    );
    for (const one of some) {
      const admission = found.get(one.row);
      if (admission === 'run_seq_taken') conflicts.add(one);
      else Object.assign(one, admission);
    }
  }
  if (conflicts.size > 0) {
    const indexes = batch.items.map(({ index }) => index);
    const taken = indexes.filter((index) => conflicts.has(result.of[index]));
    throw new BatchRejected({ outcome: 'run_seq_taken', indexes: taken });
  }
  for (const item of batch.items) {
    const admission = result.of[item.index];
    result.isReplay[item.index] = admission?.isNew !== true || admission.first !== item;
  }
  return result;
}

function admissionsOf(batch: NewBatch): ItemAdmissions {
  const { items, total } = batch;
  const known = new Map<string, Admission>();
  const of = new Array<Admission | undefined>(total).fill(undefined);
  for (const item of items) {
    const key = item.requestHash + String(item.lane);
    let admission = known.get(key);
    if (admission === undefined) {
      const row = intakeRow(batch, item);
      admission = { first: item, row, items: 0, proofId: item.proofId, isNew: false };
      known.set(key, admission);
    }
    admission.items += 1;
    of[item.index] = admission;
  }
  const admissions = [...known.values()].sort((a, b) => byUniqueKeys(a.row, b.row));
  return { admissions, of, isReplay: new Array<boolean>(total).fill(false) };
}

function intakeRow({ tenantNo, keyNo, seeds }: NewBatch, item: BatchItem): IntakeRow {
  const seed = seeds.subarray(item.index * 32, item.index * 32 + 32);
  return { ...item, requestHash: Buffer.from(item.requestHash, 'hex'), tenantNo, keyNo, seed };
}

const unnested = (tx: Transaction, rows: readonly Admission[]) => tx`
  unnest(${arrayOf(rows.map(({ proofId }) => proofId))}::uuid[],
    ${arrayOf(rows.map(({ items }) => items))}::smallint[]) as admission(proof_id, items)`;

/**
 * Counts the items that repeat a decided admission. Items that repeat a pending admission get a watch
 * row, and `resolveDuplicateItems` counts them later, even if the admission is decided concurrently.
 */
async function insertWatches(
  tx: Transaction,
  { batchId, tenantNo }: NewBatch,
  before: readonly Admission[],
): Promise<Record<'pending' | DecidedState, number>> {
  const counts = { pending: 0, admitted: 0, denied: 0, approval_required: 0 };
  for (const rows of slices(before, ROWS_PER_STATEMENT)) {
    const decided = await tx<{ id: string; state: DecidedState }[]>`
      select proof_id as id, ${decidedState(tx)} as state
      from svc.log_entry e where tenant_no = ${tenantNo}
        and proof_id = any(${arrayOf(rows.map(({ proofId }) => proofId))}::uuid[])`;
    const states = new Map(decided.map(({ id, state }) => [id, state]));
    for (const one of rows) counts[states.get(one.proofId) ?? 'pending'] += one.items;
    const watched = rows.filter(({ proofId }) => !states.has(proofId));
    if (watched.length === 0) continue;
    await tx`
      insert into svc.batch_watch (proof_id, batch_id, items)
      select proof_id, ${hexOf(batchId)}, items from ${unnested(tx, watched)}`;
  }
  return counts;
}

/** Inserts the items in order, and a pending row for each chunk with new admissions. */
async function insertChunks(
  tx: Transaction,
  { batchId, tenantNo, total, problems }: NewBatch,
  { of, isReplay }: ItemAdmissions,
  at: Date,
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
    const fresh = of.slice(start, end).map((one, i) => (replayed[i] === false ? one : undefined));
    const added = fresh.filter((one) => one !== undefined);
    if (added[0] === undefined) continue;
    const answers = fresh.map((one) => one?.items ?? 'NULL');
    await tx`
      insert into svc.chunk_pending (chunk_id, batch_id, first_index, tenant_no, accepted_at,
        admissions, answers)
      values (${added[0].proofId}, ${hexOf(batchId)}, ${start}, ${tenantNo}, ${at}, ${added.length},
        ${added.some(({ items }) => items > 1) ? arrayOf(answers) : null}::smallint[])`;
  }
}
