import { parseEntry } from '#protocol/entries';
import { type ErasureEntry, MAX_RANGES } from '#protocol/schemas/log-entry';
import { formatTime } from '#protocol/time';
import { holdApprovals } from '../admissions/approvals.js';
import { firstRow, slices, valuesOf } from '../db/columns.js';
import { type Db, type Transaction, databaseTime } from '../db/transaction.js';
import { entriesWhere, appendErasure } from '../log/log.js';
import { AdministrationError } from '../tenants/audit.js';

export interface ErasureOrder {
  actor: string;
  /** A reference to the erasure request, such as a case number; kept forever, so no names. */
  reasonRef: string;
}

/** An erased payload, with the keys of other rows that depend on the request. */
export interface Erased {
  proofId: string;
  tenantNo: number;
  lane: number;
  /** Whether this transaction erased the payload; false when it was erased before. */
  isNew: boolean;
  requestHash: Buffer | null;
}

/**
 * Erases an admission and the admissions that hold its request too: the pending proof and its second
 * decisions, including rejected second decisions, and rejected admissions with an equal request.
 *
 * @throws AdministrationError when one of these, or a revocation of one, is pending, or the admission is unknown
 */
export async function eraseAdmission(
  tx: Transaction,
  proofId: string,
  order: ErasureOrder,
): Promise<Erased[]> {
  const ids = await holdersOfRequest(tx, proofId);
  await holdKeys(tx);
  const erased = await eraseRows(tx, ids, order);
  const skipped = ids.find((id) => !erased.some((one) => one.proofId === id));
  if (skipped !== undefined) {
    throw new AdministrationError(
      `admission ${skipped}, or a revocation of it, is still pending: erase ${proofId} when neither is pending`,
    );
  }
  // Before the append, whose lock delays every admission until the transaction ends.
  await eraseTraces(tx, erased);
  await appendErasures(tx, 'erased', newLeavesOf(erased));
  return erased;
}

/** The admissions that share the request. No approval adds an admission until the transaction ends. */
async function holdersOfRequest(tx: Transaction, proofId: string): Promise<string[]> {
  const [named] = await tx<{ pending: string }[]>`
    select coalesce(approves, proof_id) as pending from svc.intake where proof_id = ${proofId}::uuid`;
  if (named === undefined) throw new AdministrationError(`unknown admission ${proofId}`);
  const { pending } = named;
  await holdApprovals(tx, [pending]);
  // The last part of the union finds rejected admissions, which the indexes of svc.intake exclude.
  return valuesOf(tx`
    select proof_id from svc.intake where proof_id = ${pending}::uuid
    union
    select proof_id from svc.intake where approves = ${pending}::uuid and not refused
    union
    select proof_id from svc.refusal join svc.intake i using (proof_id)
    where i.refused and (i.approves = ${pending}::uuid
      or (i.tenant_no, i.lane, i.request_hash) = (
        select tenant_no, lane, request_hash from svc.intake where proof_id = ${pending}::uuid))`);
}

/**
 * Erases admissions, and the second decisions that hold their requests: the caller may have listed the
 * admissions before a second decision was stored.
 *
 * @returns the erased admissions, and the ids of those that are pending or have a pending revocation
 */
export async function eraseListed(
  tx: Transaction,
  listed: readonly string[],
  order: ErasureOrder,
): Promise<{ erased: Erased[]; unsettled: string[] }> {
  const decided = await tx<{ id: string; isPending: boolean }[]>`
    select proof_id as id, effect is not distinct from 'REQUIRE_APPROVAL' as "isPending"
    from svc.intake i left join svc.log_entry e using (proof_id)
    where proof_id = any(${[...listed]}::uuid[]) and (e.proof_id is not null or i.refused)`;
  const pending = decided.flatMap(({ id, isPending }) => (isPending ? [id] : []));
  const held = pending.length === 0 ? [] : await secondDecisionsOf(tx, pending);
  // Erases only the admissions that the query found decided, because only these were locked against approvals.
  const erased = await erasePayloads(tx, [...decided.map(({ id }) => id), ...held], order);
  const unsettled = new Set([...listed, ...held]);
  for (const { proofId } of erased) unsettled.delete(proofId);
  return { erased, unsettled: [...unsettled] };
}

/** The second decisions of pending proofs. No approval adds a second decision until the transaction ends. */
async function secondDecisionsOf(tx: Transaction, pending: readonly string[]): Promise<string[]> {
  await holdApprovals(tx, pending);
  return valuesOf(tx`
    select proof_id from svc.intake where approves = any(${[...pending]}::uuid[]) and not refused
    union
    select proof_id from svc.refusal join svc.intake i using (proof_id)
    where i.refused and i.approves = any(${[...pending]}::uuid[]) and i.request is not null`);
}

/**
 * Nulls the payload of decided admissions and writes an erasure record for each; the
 * database rejects one step without the other. Erasure entries in the log name the proofs. A
 * repeated call erases data added since, such as a revocation reason, without a second record.
 *
 * Skips admissions that are pending or have a pending revocation: these are absent from the result.
 */
export async function erasePayloads(
  tx: Transaction,
  proofIds: readonly string[],
  order: ErasureOrder,
): Promise<Erased[]> {
  const erased = await eraseRows(tx, proofIds, order);
  await appendErasures(tx, 'erased', newLeavesOf(erased));
  return erased;
}

type ErasedRow = Erased & { leafIndex: number | null };

const newLeavesOf = (erased: readonly ErasedRow[]): number[] =>
  erased.flatMap(({ isNew, leafIndex }) => (isNew ? (leafIndex ?? []) : []));

async function eraseRows(
  tx: Transaction,
  proofIds: readonly string[],
  order: ErasureOrder,
): Promise<ErasedRow[]> {
  // Does not lock pending admissions: a worker that holds the append lock may reject them.
  const decided = await tx<Omit<ErasedRow, 'isNew'>[]>`
    select i.proof_id as "proofId", i.tenant_no as "tenantNo", i.lane, i.request_hash as "requestHash",
      e.leaf_index as "leafIndex"
    from svc.intake i left join svc.log_entry e using (proof_id)
    where i.proof_id = any(${[...proofIds]}::uuid[]) and (e.proof_id is not null or i.refused)
      and not exists (select from svc.revocation_request r join svc.revocation_pending using (request_id)
        where r.proof_id = i.proof_id)
    order by i.proof_id for update of i`;
  const recorded = await nullPayloads(tx, decided, order);
  await eraseReasons(
    tx,
    decided.map(({ proofId }) => proofId),
  );
  return decided.map((one) => ({ ...one, isNew: recorded.has(one.proofId) }));
}

/**
 * Deletes the payloads, and writes an erasure record for each that has none. Returns the ids of the proofs
 * that the insertion recorded: a concurrent erasure may have written a record after the caller's read.
 */
async function nullPayloads(
  tx: Transaction,
  decided: readonly { proofId: string; leafIndex: number | null }[],
  order: ErasureOrder,
): Promise<ReadonlySet<string>> {
  if (decided.length === 0) return new Set();
  const ids = decided.map(({ proofId }) => proofId);
  const recorded = await tx<{ proofId: string }[]>`
    insert into svc.erasure (proof_id, leaf_index, actor, reason_ref)
    select proof_id, leaf_index, ${order.actor}, ${order.reasonRef}
    from unnest(${ids}::uuid[], ${decided.map(({ leafIndex }) => leafIndex)}::bigint[])
      as decided(proof_id, leaf_index)
    on conflict do nothing returning proof_id as "proofId"`;
  await tx`
    update svc.intake set request = null, request_hash = null, seed = null, approval = null
    where proof_id = any(${ids}::uuid[])`;
  await tx`
    update svc.log_entry
    set signature = null, reasons = null, budgets = null, action = null, intent_id = null,
      parent = null
    where proof_id = any(${ids}::uuid[]) and body is null`;
  await tx`update svc.refusal set detail = '' where proof_id = any(${ids}::uuid[])`;
  return new Set(recorded.map(({ proofId }) => proofId));
}

/** Limit for each entry: publishers and monitors hold the records of its leaves in memory. */
const MOST_LEAVES = 100_000;

async function appendErasures(
  tx: Transaction,
  cause: ErasureEntry['cause'],
  leaves: number[],
): Promise<void> {
  const ascending = leaves.sort((a, b) => a - b);
  for (const some of slices(ascending, MOST_LEAVES).flatMap((part) =>
    slices(rangesOf(part), MAX_RANGES),
  )) {
    const time = formatTime(await databaseTime(tx));
    await appendErasure(tx, { cause, ranges: some, time });
  }
}

function rangesOf(ascending: readonly number[]): [number, number][] {
  const ranges: [number, number][] = [];
  for (const leaf of ascending) {
    const last = ranges.at(-1);
    if (last?.[1] === leaf) last[1] = leaf + 1;
    else ranges.push([leaf, leaf + 1]);
  }
  return ranges;
}

const PAGE = 1_000;

/**
 * Records that the payloads of the adopted proofs (restored from the published log, from leaf `from` on)
 * are lost, and names the proofs in erasure entries. Erases again the payloads that adopted entries report
 * as erased: the restored backup still has them.
 *
 * @returns how many proofs lost their payload
 */
export async function eraseAdopted(
  tx: Transaction,
  from: number,
  order: ErasureOrder,
): Promise<number> {
  const adopted = await entriesWhere(
    tx,
    tx`kind = 4 and leaf_index >= ${from} order by leaf_index`,
  );
  const reported = adopted
    .flatMap(({ body }) => (parseEntry(body) as ErasureEntry).ranges)
    .sort(([a], [b]) => a - b);
  const lost: number[] = [];
  let count = 0;
  for (const [first, end] of [[from, Number.MAX_SAFE_INTEGER] as const, ...reported]) {
    // The first reported range that does not end before the current leaf.
    let at = 0;
    for (let next = first, page; page === undefined || page.length === PAGE;) {
      page = await tx<(Erased & { leafIndex: number })[]>`
        select e.proof_id as "proofId", i.tenant_no as "tenantNo", i.lane,
          i.request_hash as "requestHash", e.leaf_index as "leafIndex"
        from svc.log_entry e left join svc.intake i using (proof_id)
        where e.kind = 1 and e.leaf_index >= ${next} and e.leaf_index < ${end}
          and (select true from svc.erasure x where x.proof_id = e.proof_id) is null
        order by e.leaf_index limit ${PAGE}`;
      await nullPayloads(tx, page, order);
      await eraseReasons(
        tx,
        page.map(({ proofId }) => proofId),
      );
      await eraseTraces(
        tx,
        page.filter(({ tenantNo }) => (tenantNo as number | null) !== null),
      );
      for (const { leafIndex: leaf } of page) {
        next = leaf + 1;
        if (leaf < from) continue;
        count += 1;
        while (at < reported.length && reported[at]![1] <= leaf) at += 1;
        if (at === reported.length || leaf < reported[at]![0]) lost.push(leaf);
      }
    }
  }
  await appendErasures(tx, 'lost', lost);
  return count;
}

/**
 * Erases the revocation reasons; the log keeps their salted hashes. A pending revocation keeps its
 * reason, because a worker checks the reason against the hash before it appends.
 */
export async function eraseReasons(tx: Transaction, ids: readonly string[]): Promise<void> {
  await tx`
    update svc.revocation_request r set document = null
    where document is not null and proof_id = any(${[...ids]}::uuid[]) and not exists (
      select from svc.revocation_pending q where q.request_id = r.request_id)`;
  await tx`
    update svc.revocation_reason set document = null
    where document is not null and reason_hash in (
      select decode(convert_from(body, 'UTF8')::jsonb ->> 'reason_hash', 'hex')
      from svc.log_entry where kind = 2 and revokes = any(${[...ids]}::uuid[]))`;
}

export const erasureOf = (sql: Db, proofId: string) =>
  firstRow(sql<(ErasureOrder & { erasedAt: Date })[]>`
    select erased_at as "erasedAt", actor, reason_ref as "reasonRef"
    from svc.erasure where proof_id = ${proofId}::uuid`);

/**
 * Waits for transactions that bind idempotency keys, possibly to an erased admission, and blocks new
 * keys until the transaction ends. Must run before any row lock, to avoid deadlock.
 */
export async function holdKeys(tx: Transaction): Promise<void> {
  await tx`lock table svc.idempotency_key in share row exclusive mode`;
}

/**
 * Erases the idempotency keys and unsalted body hashes of erased admissions. Row-level security hides
 * keys that are also bound to kept data.
 */
async function eraseTraces(tx: Transaction, erased: readonly Erased[]): Promise<void> {
  const bodies = new Map<string, Erased>();
  for (const one of erased) {
    const { tenantNo, lane, requestHash } = one;
    if (requestHash !== null) bodies.set(`${tenantNo} ${lane} ${requestHash.toString('hex')}`, one);
  }
  // Runs one statement for each body: for a list of bodies, row-level security would check every key of the registry.
  for (const { tenantNo, lane, requestHash } of bodies.values()) {
    await tx`
      delete from svc.idempotency_key
      where tenant_no = ${tenantNo} and lane = ${lane} and request_hash = ${requestHash}`;
  }
  for (const tenantNo of new Set(erased.map((one) => one.tenantNo))) {
    const ids = erased.flatMap((one) => (one.tenantNo === tenantNo ? [one.proofId] : []));
    const batches = await tx<HashedBatch[]>`
      select distinct b.batch_id as id, b.items_hash as hash
      from svc.batch b join svc.batch_part p using (batch_id)
      where b.tenant_no = ${tenantNo} and b.items_hash is not null and p.proof_ids && ${ids}::uuid[]`;
    await eraseBatches(tx, tenantNo, batches);
  }
}

/** A batch whose items hash is erased, with the idempotency keys bound to that hash. */
export interface HashedBatch {
  id: string;
  hash: Buffer;
}

/** Erases items hashes before idempotency keys: row-level security hides a key while a batch has its hash. */
export async function eraseBatches(
  tx: Transaction,
  tenantNo: number,
  batches: readonly HashedBatch[],
): Promise<void> {
  if (batches.length === 0) return;
  await tx`
    update svc.batch set items_hash = null
    where batch_id = any(${batches.map(({ id }) => id)}::uuid[]) and items_hash is not null`;
  await tx`
    delete from svc.idempotency_key
    where tenant_no = ${tenantNo} and lane = 3 and request_hash in (
      select decode(hash, 'hex')
      from unnest(${batches.map(({ hash }) => hash.toString('hex'))}::text[]) as asked(hash))`;
}
