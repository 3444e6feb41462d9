import type { Effect } from '#protocol/status';
import { type Db, type Pool, type Transaction, transaction } from '../db/transaction.js';
import { arrayOf, batchIdOf, hexOf, valuesOf } from '../db/columns.js';
import type { BatchRef } from '../admissions/pending.js';
import { lockHead } from '../log/append.js';

/** The state of a batch item with a decision. */
export type DecidedState = 'admitted' | 'denied' | 'approval_required';

export const stateOf = (effect: Effect): DecidedState =>
  (({ ADMIT: 'admitted', DENY: 'denied', REQUIRE_APPROVAL: 'approval_required' }) as const)[effect];

/** The state that follows from the effect of `svc.log_entry e`; null without a decision. */
export const decidedState = (sql: Db) => sql`
  case e.effect when 'ADMIT' then 'admitted' when 'DENY' then 'denied'
    when 'REQUIRE_APPROVAL' then 'approval_required' end`;

export interface BatchOutcomeCount {
  batch: BatchRef;
  outcome: DecidedState | 'refused';
}

/**
 * Counts outcomes in the transaction that commits them, so that a batch's counts always match its
 * items. Callers that count several batches must hold the append lock, because unordered row locks
 * could deadlock.
 */
export async function countOutcomes(
  tx: Transaction,
  outcomes: readonly BatchOutcomeCount[],
): Promise<void> {
  if (outcomes.length === 0) return;
  const sums = new Map<string, Record<BatchOutcomeCount['outcome'], number>>();
  for (const { batch, outcome } of outcomes) {
    const counted = sums.get(batch.batchId) ?? {
      admitted: 0,
      denied: 0,
      approval_required: 0,
      refused: 0,
    };
    counted[outcome] += batch.items;
    sums.set(batch.batchId, counted);
  }
  const rows = [...sums];
  await tx`
    update svc.batch_progress g set
      pending = g.pending - s.admitted - s.denied - s.approval_required - s.refused,
      admitted = g.admitted + s.admitted,
      denied = g.denied + s.denied,
      approval_required = g.approval_required + s.approval_required,
      refused = g.refused + s.refused,
      completed_at = case when g.pending = s.admitted + s.denied + s.approval_required + s.refused
        then date_trunc('milliseconds', clock_timestamp()) end
    from unnest(
      ${rows.map(([id]) => hexOf(id))}::uuid[],
      ${rows.map(([, counted]) => counted.admitted)}::integer[],
      ${rows.map(([, counted]) => counted.denied)}::integer[],
      ${rows.map(([, counted]) => counted.approval_required)}::integer[],
      ${rows.map(([, counted]) => counted.refused)}::integer[])
      as s(batch_id, admitted, denied, approval_required, refused)
    where g.batch_id = s.batch_id`;
}

/** The advisory lock of the chunk dispatcher. Advisory lock numbers are shared by the whole database. */
const DISPATCH_LOCK = 7_301_003;
/** Maximum number of chunks in one lease; small chunks are combined. */
const MAX_CHUNKS = 64;

/**
 * Leases the next chunks: up to `most` pending admissions in batch order, of the tenant with the
 * oldest last lease; null when no chunk waits. `requeueExpiredLeases` recovers lost leases.
 */
export function leaseNextChunks(sql: Pool, most: number) {
  return transaction(sql, async (tx) => {
    await tx`select pg_advisory_xact_lock(${DISPATCH_LOCK})`;
    const leased = await tx<{ id: string; admissions: number }[]>`
      with recursive tenants(tenant_no) as (
        (select tenant_no from svc.chunk_pending where leased_at is null order by tenant_no limit 1)
        union all
        select (select c.tenant_no from svc.chunk_pending c
          where c.leased_at is null and c.tenant_no > w.tenant_no order by c.tenant_no limit 1)
        from tenants w where w.tenant_no is not null),
      next as materialized (
        select w.tenant_no from tenants w left join svc.chunk_lease l using (tenant_no)
        where w.tenant_no is not null
        order by l.lease_no nulls first, w.tenant_no limit 1),
      numbered as (
        insert into svc.chunk_lease (tenant_no) select tenant_no from next
        on conflict (tenant_no) do update set lease_no = default),
      first as (
        select chunk_id, sum(admissions) over (order by batch_id, first_index) as so_far, admissions
        from (select c.* from svc.chunk_pending c join next using (tenant_no)
          where c.leased_at is null order by c.batch_id, c.first_index limit ${MAX_CHUNKS}) waiting)
      update svc.chunk_pending c set leased_at = clock_timestamp()
      from first f
      where f.chunk_id = c.chunk_id and (f.so_far = f.admissions or f.so_far <= ${most})
      returning c.chunk_id as id, c.admissions`;
    if (leased.length === 0) return null;
    return {
      chunkIds: leased.map(({ id }) => id),
      admissions: leased.reduce((sum, { admissions }) => sum + admissions, 0),
    };
  });
}

const RENEWED_AT_ONCE = 200;

/**
 * Ends leases older than `ms` milliseconds, because the queue lost the job or the worker died. The
 * chunks can be leased again. Returns their number.
 */
export async function requeueExpiredLeases(sql: Db, ms: number): Promise<number> {
  const expired = await sql`
    with expired as materialized (
      select chunk_id from svc.chunk_pending
      where leased_at < clock_timestamp() - ${`${ms} milliseconds`}::interval
        or leased_at > clock_timestamp() -- the clock was set back since the lease
      order by leased_at limit ${RENEWED_AT_ONCE} for update skip locked)
    update svc.chunk_pending c set leased_at = null from expired e where e.chunk_id = c.chunk_id`;
  return expired.count;
}

/**
 * Replaces pending chunks by a pending row for each of their admissions, and returns the ids of the
 * admissions.
 */
export const splitChunks = (sql: Db, chunkIds: readonly string[]): Promise<string[]> =>
  valuesOf(sql`
    with split as (
      delete from svc.chunk_pending where chunk_id = any(${arrayOf(chunkIds)}::uuid[]) returning *)
    insert into svc.intake_pending (proof_id, accepted_at, batch_id, batch_items)
    select u.proof_id, s.accepted_at, s.batch_id, coalesce(u.answers, 1)
    from split s join svc.batch_part p using (batch_id, first_index)
    cross join lateral unnest(p.proof_ids, p.replayed, s.answers) as u(proof_id, replayed, answers)
    where u.replayed is not true and (select true from svc.intake i where i.proof_id = u.proof_id)
    returning proof_id`);

export type WatchedPlace = [proofId: string, batchId: string];

/**
 * Counts watched items whose admission is decided by now. Examines up to `limit` rows; returns the
 * position to continue from, or null at the end.
 */
export async function resolveDuplicateItems(
  sql: Pool,
  limit: number,
  after: WatchedPlace | null = null,
): Promise<{ counted: number; next: WatchedPlace | null }> {
  const [proofId, batchId] = after ?? [NIL, NIL];
  const rows = await sql<(WatchedItem & { isDecided: boolean })[]>`
    select w.proof_id as proof, w.batch_id as batch,
      e.proof_id is not null or r.proof_id is not null as "isDecided"
    from svc.batch_watch w
    left join svc.log_entry e using (proof_id)
    left join svc.refusal r using (proof_id)
    where (w.proof_id, w.batch_id) > (${proofId}::uuid, ${batchId}::uuid)
    order by w.proof_id, w.batch_id limit ${limit}`;
  const found = rows.filter(({ isDecided }) => isDecided);
  const counted = found.length === 0 ? 0 : await transaction(sql, (tx) => countWatched(tx, found));
  const last = rows.at(-1);
  const isEnd = rows.length < limit || last === undefined;
  return { counted, next: isEnd ? null : [last.proof, last.batch] };
}

const NIL = '0'.repeat(32);

interface WatchedItem {
  proof: string;
  batch: string;
}

/** Deletes and counts watch rows: only one transaction can delete a row, so no item is counted twice. */
async function countWatched(tx: Transaction, found: WatchedItem[]): Promise<number> {
  await lockHead(tx);
  const gone = await tx<(Pick<BatchOutcomeCount, 'outcome'> & { batch: string; items: number })[]>`
    with gone as (
      delete from svc.batch_watch
      where (proof_id, batch_id) in (select * from unnest(
        ${found.map(({ proof }) => proof)}::uuid[], ${found.map(({ batch }) => batch)}::uuid[]))
      returning proof_id, batch_id, items)
    select g.batch_id as batch, g.items, coalesce(${decidedState(tx)}, 'refused') as outcome
    from gone g left join svc.log_entry e using (proof_id)`;
  await countOutcomes(
    tx,
    gone.map(({ batch, items, outcome }) => ({
      batch: { batchId: batchIdOf(batch), items },
      outcome,
    })),
  );
  return gone.length;
}
