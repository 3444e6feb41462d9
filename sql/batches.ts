import { bytesOf } from './columns.js';
import type { Db, Pool, Transaction } from './db.js';
import { batchIdOf, batchUuid, fromUuid, toUuid } from './ids.js';
import { firstsOf, pinPolicy, type Lane, type PinnedPolicy } from './intake.js';
import { asTenants } from './tenant-scope.js';

/** An item of a batch that an admission is made of. */
export interface BatchItem {
  /** Its place in the batch, from 0. */
  index: number;
  proofId: string;
  lane: Lane;
  request: Uint8Array;
  requestHash: Uint8Array;
  fixtureRef: string | null;
}

export interface NewBatch {
  batchId: string;
  tenantNo: number;
  keyNo: number;
  /** The identity of the batch: of its items in their order. */
  itemsHash: Uint8Array;
  /** Of the request that brought it: what the problems of its items name. */
  requestId: string;
  idempotencyKey: string | null;
  total: number;
  items: BatchItem[];
  /** What is wrong with the others, as JSON, by their index. */
  problems: ReadonlyMap<number, string>;
  /** The salts of the items, 32 bytes each in their order. */
  salts: Uint8Array;
}

/** How much may be pending once the batch is accepted. */
export interface Room {
  /** Of everybody's admissions. */
  admissions: number;
  /** Of everybody's batches. */
  batches: number;
  /** Of the tenant's own batches. */
  own: number;
}

export type BatchOutcome =
  | { outcome: 'accepted'; batchId: string; awaited: number }
  | { outcome: 'repeat'; batchId: string }
  | { outcome: 'idempotency_conflict' }
  | { outcome: 'no_room' };

/** Idempotency keys of batches are a space of their own, beside those of the two lanes. */
const BATCHES = 3;
/** Items of one part, which is what is handed to a worker at a time. */
export const PART_ITEMS = 250;
const ROWS_PER_STATEMENT = 1_000;

/** Rolls back what was done so far, with an answer. */
class Ended extends Error {
  constructor(readonly outcome: BatchOutcome) {
    super(outcome.outcome);
  }
}

/**
 * Makes a batch durable, in one transaction: its admissions, the problems of its other items, what
 * it is asked about, and its turns to be worked. All of it or nothing.
 *
 * Its identity is the tenant and the items in their order; the same again is the first batch, also
 * when both come at once: the second waits for the first. Within it, and before it, the identity of
 * an admission is what it is for one that comes alone.
 *
 * @throws PolicyMissingError when no policy set is active
 * @throws DatabaseUnavailableError
 */
export async function acceptBatch(sql: Pool, batch: NewBatch, room: Room): Promise<BatchOutcome> {
  try {
    return await asTenants(sql, [batch.tenantNo], (tx) => accept(tx, batch, room));
  } catch (error) {
    if (error instanceof Ended) return error.outcome;
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
  const fresh = new Map<string, number>();
  const before = new Map<string, number>();
  for (const { proofId, isNew } of pointing.values()) {
    const counted = isNew ? fresh : before;
    counted.set(proofId, (counted.get(proofId) ?? 0) + 1);
  }
  await insertPending(tx, batch.batchId, fresh, pins.at);
  const earlier = await insertWatches(tx, batch, before);
  const awaited = sum(fresh.values()) + earlier.pending;
  await insertParts(tx, batch, pointing);
  const replayed = [...pointing.values()].filter((one) => one.isReplay).length;
  await tx`
    insert into svc.batch_progress (batch_id, tenant_no, awaited, pending, admitted, denied, refused,
      invalid, replayed, completed_at)
    values (${batchUuid(batch.batchId)}, ${batch.tenantNo}, ${awaited}, ${awaited},
      ${earlier.admitted}, ${earlier.denied}, 0, ${batch.problems.size}, ${replayed},
      ${awaited === 0 ? pins.at : null})`;
  return { outcome: 'accepted', batchId: batch.batchId, awaited };
}

/** Whether the key that was sent, if one was, belongs to these items and no others. */
async function bindKey(tx: Transaction, batch: NewBatch): Promise<boolean> {
  const { tenantNo, idempotencyKey: key, itemsHash } = batch;
  if (key === null) return true;
  await tx`
    insert into svc.idempotency_key (tenant_no, lane, key, request_hash)
    values (${tenantNo}, ${BATCHES}, ${key}, ${Buffer.from(itemsHash)}) on conflict do nothing`;
  const [bound] = await tx<{ request_hash: Buffer }[]>`
    select request_hash from svc.idempotency_key
    where tenant_no = ${tenantNo} and lane = ${BATCHES} and key = ${key}`;
  return bound?.request_hash.equals(itemsHash) === true;
}

/** Null, or the batch that these items are already. */
async function insertBatch(tx: Transaction, batch: NewBatch, at: Date): Promise<string | null> {
  const itemsHash = Buffer.from(batch.itemsHash);
  const inserted = await tx`
    insert into svc.batch (batch_id, tenant_no, key_no, items_hash, total, request_id, accepted_at)
    values (${batchUuid(batch.batchId)}, ${batch.tenantNo}, ${batch.keyNo}, ${itemsHash},
      ${batch.total}, ${batch.requestId}, ${at})
    on conflict (tenant_no, items_hash) do nothing`;
  if (inserted.count > 0) return null;
  const [first] = await tx<{ batch_id: string }[]>`
    select batch_id::text from svc.batch
    where tenant_no = ${batch.tenantNo} and items_hash = ${itemsHash}`;
  if (first === undefined) throw new Error('a batch is in the way that is not there');
  return batchIdOf(first.batch_id);
}

async function requireRoom(tx: Transaction, batch: NewBatch, room: Room): Promise<void> {
  const [depth] = await tx<{ admissions: number; everybodys: number; own: number }[]>`
    select svc.pending_depth(${room.admissions}) as admissions, b.everybodys, b.own
    from svc.batch_pending(${batch.tenantNo}) b`;
  const { length } = batch.items;
  const fits =
    depth !== undefined &&
    depth.admissions + length <= room.admissions &&
    depth.everybodys + length <= room.batches &&
    depth.own + length <= room.own;
  // What was bound and inserted so far goes with the transaction.
  if (!fits && length > 0) throw new Ended({ outcome: 'no_room' });
}

/** What an item points to. */
interface Pointing {
  proofId: string;
  /** The admission is this batch's own. */
  isNew: boolean;
  /** The item itself was answered by an admission before it, in this batch or earlier. */
  isReplay: boolean;
}

const identityOf = ({ lane, requestHash }: BatchItem): string =>
  `${lane}${Buffer.from(requestHash).toString('latin1')}`;

/** Everyone inserts in one order, so that waiting for a neighbour's unique key is never a cycle. */
const byIdentity = (a: BatchItem, b: BatchItem): number =>
  a.lane - b.lane || Buffer.compare(a.requestHash, b.requestHash);

/** Inserts the admissions that are new, and says by index what each item points to. */
async function insertAdmissions(
  tx: Transaction,
  batch: NewBatch,
  pins: PinnedPolicy,
): Promise<Map<number, Pointing>> {
  const firsts = new Map<string, BatchItem>();
  for (const item of batch.items) {
    const identity = identityOf(item);
    if (!firsts.has(identity)) firsts.set(identity, item);
  }
  const found = new Map<BatchItem, { proofId: string; isNew: boolean }>();
  let open = [...firsts.values()].sort(byIdentity);
  while (open.length > 0) {
    const inTheWay: BatchItem[] = [];
    for (const rows of slices(open, ROWS_PER_STATEMENT)) {
      const inserted = await insertIntake(tx, batch, rows, pins);
      for (const item of rows) {
        if (inserted === 'all' || inserted.has(item.proofId)) {
          found.set(item, { proofId: item.proofId, isNew: true });
        } else inTheWay.push(item);
      }
    }
    open = [];
    for (const items of slices(inTheWay, ROWS_PER_STATEMENT)) {
      const asked = items.map((item) => ({ ...item, tenantNo: batch.tenantNo }));
      const proofIds = await firstsOf(tx, asked);
      items.forEach((item, at) => {
        const proofId = proofIds[at] ?? null;
        // One that was refused in between has given its identity back: those go round again.
        if (proofId === null) open.push(item);
        else found.set(item, { proofId, isNew: false });
      });
    }
  }
  const pointing = new Map<number, Pointing>();
  for (const item of batch.items) {
    const first = firsts.get(identityOf(item));
    const what = first && found.get(first);
    if (what === undefined) throw new Error('an item of a batch was left without an admission');
    pointing.set(item.index, { ...what, isReplay: !what.isNew || first !== item });
  }
  return pointing;
}

/**
 * The intake rows of these items; the proof ids of those that were inserted, if not all were. What
 * is long goes as a few values that the database cuts up: an array of so many is escaped twice.
 */
async function insertIntake(
  tx: Transaction,
  { tenantNo, keyNo, salts }: NewBatch,
  rows: BatchItem[],
  pins: PinnedPolicy,
): Promise<'all' | Set<string>> {
  const requests = bytesOf(rows.map(({ request }) => request));
  const saltOf = ({ index }: BatchItem): Uint8Array => salts.subarray(index * 32, index * 32 + 32);
  const inserted = await tx`
    insert into svc.intake (proof_id, tenant_no, lane, environment, request, request_hash,
      accepted_at, salt, policy_digest, fixture_hash, validity, key_no)
    select i.proof_id, t.tenant_no, i.lane, t.environment,
      substring(packed.requests from i.start for i.length),
      substring(packed.hashes from (i.n::integer - 1) * 32 + 1 for 32), ${pins.at},
      substring(packed.salts from (i.n::integer - 1) * 32 + 1 for 32), ${pins.digest},
      f.fixture_hash, t.validity, ${keyNo}
    from (select ${requests.bytes}::bytea as requests,
        ${Buffer.concat(rows.map(({ requestHash }) => requestHash))}::bytea as hashes,
        ${Buffer.concat(rows.map(saltOf))}::bytea as salts) packed
    cross join unnest(
      ${rows.map(({ proofId }) => toUuid(proofId))}::uuid[],
      ${rows.map(({ lane }) => lane)}::smallint[],
      ${requests.starts}::integer[],
      ${requests.lengths}::integer[],
      ${rows.map(({ fixtureRef }) => fixtureRef)}::text[])
      with ordinality as i(proof_id, lane, start, length, fixture_ref, n)
    join svc.tenant t on t.tenant_no = ${tenantNo}
    left join svc.fixture f using (fixture_ref)
    order by i.n
    on conflict (tenant_no, lane, request_hash) where not refused do nothing`;
  if (inserted.count === rows.length) return 'all';
  const found = await tx<{ proof_id: string }[]>`
    select proof_id::text from svc.intake
    where proof_id = any(${rows.map(({ proofId }) => toUuid(proofId))}::uuid[])`;
  return new Set(found.map((row) => fromUuid(row.proof_id)));
}

async function insertPending(
  tx: Transaction,
  batchId: string,
  fresh: ReadonlyMap<string, number>,
  at: Date,
): Promise<void> {
  for (const rows of slices([...fresh], ROWS_PER_STATEMENT)) {
    await tx`
      insert into svc.intake_pending (proof_id, accepted_at, batch_id, batch_items)
      select proof_id, ${at}, ${batchUuid(batchId)}, items
      from unnest(${rows.map(([id]) => toUuid(id))}::uuid[], ${rows.map(([, items]) => items)}::smallint[])
        as fresh(proof_id, items)`;
  }
}

/**
 * Items that point to admissions of before: those that are settled count at once, and the others
 * are watched. One that is being settled at this moment is watched too, and found by the next look.
 */
async function insertWatches(
  tx: Transaction,
  { batchId, tenantNo }: NewBatch,
  before: ReadonlyMap<string, number>,
): Promise<{ pending: number; admitted: number; denied: number }> {
  const counts = { pending: 0, admitted: 0, denied: 0 };
  for (const rows of slices([...before], ROWS_PER_STATEMENT)) {
    const effects = await effectsOf(
      tx,
      tenantNo,
      rows.map(([id]) => id),
    );
    const watched: [string, number][] = [];
    rows.forEach(([proofId, items]) => {
      const effect = effects.get(proofId);
      if (effect === undefined) watched.push([proofId, items]);
      counts[effect === undefined ? 'pending' : effect] += items;
    });
    if (watched.length === 0) continue;
    await tx`
      insert into svc.batch_watch (proof_id, batch_id, items)
      select proof_id, ${batchUuid(batchId)}, items
      from unnest(${watched.map(([id]) => toUuid(id))}::uuid[],
        ${watched.map(([, items]) => items)}::smallint[]) as watched(proof_id, items)`;
  }
  return counts;
}

async function effectsOf(
  tx: Db,
  tenantNo: number,
  proofIds: string[],
): Promise<Map<string, 'admitted' | 'denied'>> {
  const rows = await tx<{ proof_id: string; effect: 'ADMIT' | 'DENY' }[]>`
    select proof_id::text, effect from svc.proof
    where proof_id = any(${proofIds.map(toUuid)}::uuid[]) and tenant_no = ${tenantNo}`;
  return new Map(
    rows.map(({ proof_id, effect }) => [
      fromUuid(proof_id),
      effect === 'ADMIT' ? 'admitted' : 'denied',
    ]),
  );
}

/** The items in their order, and a turn for each part that has something to be worked. */
async function insertParts(
  tx: Transaction,
  { batchId, tenantNo, total, problems }: NewBatch,
  pointing: ReadonlyMap<number, Pointing>,
): Promise<void> {
  for (let start = 0; start < total; start += PART_ITEMS) {
    const indexes = Array.from(
      { length: Math.min(PART_ITEMS, total - start) },
      (_, i) => start + i,
    );
    const items = indexes.map((index) => pointing.get(index));
    const replayed = items.map((item) => String(item?.isReplay === true));
    const wrong = indexes.flatMap((index) => {
      const problem = problems.get(index);
      return problem === undefined ? [] : [`"${String(index)}":${problem}`];
    });
    await tx`
      insert into svc.batch_part (batch_id, first_index, proof_ids, replayed, problems)
      values (${batchUuid(batchId)}, ${start},
        ${items.map((item) => (item === undefined ? null : toUuid(item.proofId)))}::uuid[],
        ${replayed.includes('true') ? replayed : null}::text[]::boolean[],
        ${wrong.length > 0 ? Buffer.from(`{${wrong.join(',')}}`) : null})`;
    const fresh = items.filter((item) => item?.isReplay === false).length;
    if (fresh === 0) continue;
    await tx`
      insert into svc.batch_turn (batch_id, first_index, tenant_no, items)
      values (${batchUuid(batchId)}, ${start}, ${tenantNo}, ${fresh})`;
  }
}

function slices<T>(all: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, i) =>
    all.slice(i * size, (i + 1) * size),
  );
}

function sum(values: Iterable<number>): number {
  let total = 0;
  for (const value of values) total += value;
  return total;
}
