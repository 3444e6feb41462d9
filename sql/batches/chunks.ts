import { type Db, type Pool, type Transaction, transaction } from '../db/transaction.js';
import { batchIdOf, hexOf } from '../db/columns.js';
import type { BatchRef } from '../admissions/append.js';
import { lockHead } from '../log/log.js';

export interface BatchOutcomeCount {
  share: BatchRef;
  outcome: 'admitted' | 'denied' | 'refused';
}

/**
 * Counts outcomes in the transaction that commits them, so that a batch's counts always match its
 * items. Callers that count several batches must hold the append lock, because unordered row locks
 * could deadlock.
 */
export async function countOutcomes(
  tx: Transaction,
  tallies: readonly BatchOutcomeCount[],
): Promise<void> {
  if (tallies.length === 0) return;
  const sums = new Map<string, Record<BatchOutcomeCount['outcome'], number>>();
  for (const { share, outcome } of tallies) {
    const counted = sums.get(share.batchId) ?? { admitted: 0, denied: 0, refused: 0 };
    counted[outcome] += share.items;
    sums.set(share.batchId, counted);
  }
  const rows = [...sums];
  await tx`
    update svc.batch_progress g set
      pending = g.pending - s.admitted - s.denied - s.refused,
      admitted = g.admitted + s.admitted,
      denied = g.denied + s.denied,
      refused = g.refused + s.refused,
      completed_at = case when g.pending = s.admitted + s.denied + s.refused
        then date_trunc('milliseconds', clock_timestamp()) end
    from unnest(
      ${rows.map(([id]) => hexOf(id))}::uuid[],
      ${rows.map(([, counted]) => counted.admitted)}::integer[],
      ${rows.map(([, counted]) => counted.denied)}::integer[],
      ${rows.map(([, counted]) => counted.refused)}::integer[])
      as s(batch_id, admitted, denied, refused)
    where g.batch_id = s.batch_id`;
}

/** The advisory lock of the chunk dispatcher. Advisory lock numbers are shared by the whole database. */
const DISPATCH_LOCK = 7_301_003;
/** The most chunks in one lease; small chunks are combined. */
const MAX_CHUNKS = 64;

interface ChunkPlace {
  batch: string;
  first: number;
}

const unnested = (tx: Db, chunks: readonly ChunkPlace[]) => tx`
  unnest(${chunks.map(({ batch }) => batch)}::uuid[], ${chunks.map(({ first }) => first)}::integer[])`;

/**
 * Leases the next chunk: the ids of up to `items` pending admissions in batch order, of the tenant
 * with the oldest last lease; null when no chunk waits. `requeueExpiredLeases` recovers a lease
 * whose admissions stay pending.
 */
export function leaseNextChunk(sql: Pool, items: number): Promise<string[] | null> {
  return transaction(sql, async (tx) => {
    await tx`select pg_advisory_xact_lock(${DISPATCH_LOCK})`;
    const handed = await tx<ChunkPlace[]>`
      with recursive tenants(tenant_no) as (
        (select tenant_no from svc.batch_turn where handed_at is null order by tenant_no limit 1)
        union all
        select (select t.tenant_no from svc.batch_turn t
          where t.handed_at is null and t.tenant_no > w.tenant_no order by t.tenant_no limit 1)
        from tenants w where w.tenant_no is not null),
      next as (
        select w.tenant_no from tenants w
        left join lateral (select max(t.handed_at) as at from svc.batch_turn t
          where t.tenant_no = w.tenant_no and t.handed_at is not null) last on true
        where w.tenant_no is not null
        order by last.at nulls first, w.tenant_no limit 1),
      parts as (
        select batch_id, first_index, sum(items) over (order by batch_id, first_index) as so_far, items
        from (select t.batch_id, t.first_index, t.items
          from svc.batch_turn t join next using (tenant_no)
          where t.handed_at is null order by t.batch_id, t.first_index limit ${MAX_CHUNKS}) first)
      update svc.batch_turn t set handed_at = clock_timestamp()
      from parts p
      where p.batch_id = t.batch_id and p.first_index = t.first_index
        and (p.so_far = p.items or p.so_far <= ${items})
      returning t.batch_id as batch, t.first_index as first`;
    if (handed.length === 0) return null;
    const rows = await tx<{ id: string }[]>`
      select q.proof_id as id from ${unnested(tx, handed)} as handed(batch_id, first_index)
      join svc.batch_part p using (batch_id, first_index)
      cross join lateral unnest(p.proof_ids, p.replayed) as u(proof_id, replayed)
      join svc.intake_pending q on q.proof_id = u.proof_id and q.batch_id = p.batch_id
      where u.replayed is not true`;
    return rows.map(({ id }) => id);
  });
}

const RENEWED_AT_ONCE = 200;

/**
 * Ends leases older than `ms` milliseconds. Deletes those of finished chunks; other chunks can be
 * leased again, because the queue lost the job or the worker died.
 */
export function requeueExpiredLeases(
  sql: Pool,
  ms: number,
): Promise<{ over: number; again: number }> {
  return transaction(sql, async (tx) => {
    await tx`select pg_advisory_xact_lock(${DISPATCH_LOCK})`;
    const rows = await tx<(ChunkPlace & { open: boolean })[]>`
      select t.batch_id as batch, t.first_index as first,
        g.pending > 0 and exists (select from svc.batch_part p
          cross join lateral unnest(p.proof_ids) as u(proof_id)
          join svc.intake_pending q on q.proof_id = u.proof_id and q.batch_id = p.batch_id
          where p.batch_id = t.batch_id and p.first_index = t.first_index) as open
      from (select batch_id, first_index from svc.batch_turn
        where handed_at < clock_timestamp() - ${`${ms} milliseconds`}::interval
          or handed_at > clock_timestamp() -- by a clock that was set back since
        order by handed_at limit ${RENEWED_AT_ONCE}) t
      join svc.batch_progress g using (batch_id)`;
    const open = rows.filter((row) => row.open);
    const settled = rows.filter((row) => !row.open);
    if (settled.length > 0) {
      await tx`
        delete from svc.batch_turn
        where (batch_id, first_index) in (select * from ${unnested(tx, settled)})`;
    }
    if (open.length > 0) {
      await tx`
        update svc.batch_turn set handed_at = null
        where (batch_id, first_index) in (select * from ${unnested(tx, open)})`;
    }
    return { over: settled.length, again: open.length };
  });
}

export type WatchedPlace = [proofId: string, batchId: string];

/**
 * Counts watched items whose admission now has an outcome. Examines up to `limit` rows; returns the
 * position to continue from, or null at the end.
 */
export async function resolveDuplicateItems(
  sql: Pool,
  limit: number,
  after: WatchedPlace | null = null,
): Promise<{ settled: number; next: WatchedPlace | null }> {
  const [proofId, batchId] = after ?? [NIL, NIL];
  const rows = await sql<(WatchedItem & { isSettled: boolean })[]>`
    select w.proof_id as proof, w.batch_id as batch,
      e.proof_id is not null or r.proof_id is not null as "isSettled"
    from svc.batch_watch w
    left join svc.log_entry e using (proof_id)
    left join svc.refusal r using (proof_id)
    where (w.proof_id, w.batch_id) > (${proofId}::uuid, ${batchId}::uuid)
    order by w.proof_id, w.batch_id limit ${limit}`;
  const found = rows.filter(({ isSettled }) => isSettled);
  const settled = found.length === 0 ? 0 : await transaction(sql, (tx) => countWatched(tx, found));
  const last = rows.at(-1);
  const isEnd = rows.length < limit || last === undefined;
  return { settled, next: isEnd ? null : [last.proof, last.batch] };
}

const NIL = '0'.repeat(32);

interface WatchedItem {
  proof: string;
  batch: string;
}

/** Deletes and counts watch rows: only one transaction can delete a row, so none counts twice. */
async function countWatched(tx: Transaction, found: WatchedItem[]): Promise<number> {
  await lockHead(tx);
  const gone = await tx<(Pick<BatchOutcomeCount, 'outcome'> & { batch: string; items: number })[]>`
    with gone as (
      delete from svc.batch_watch
      where (proof_id, batch_id) in (select * from unnest(
        ${found.map(({ proof }) => proof)}::uuid[], ${found.map(({ batch }) => batch)}::uuid[]))
      returning proof_id, batch_id, items)
    select g.batch_id as batch, g.items, case e.effect when 'ADMIT' then 'admitted'
      when 'DENY' then 'denied' else 'refused' end as outcome
    from gone g left join svc.log_entry e using (proof_id)`;
  await countOutcomes(
    tx,
    gone.map(({ batch, items, outcome }) => ({
      share: { batchId: batchIdOf(batch), items },
      outcome,
    })),
  );
  return gone.length;
}
