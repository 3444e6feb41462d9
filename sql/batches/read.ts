import { type Db, type Pool, asTenants } from '../db/transaction.js';
import { batchIdOf, hexOf, inMs, type WithDates } from '../db/columns.js';
import { pageAfter, type TenantList } from '../db/paging.js';
import {
  outcomeColumns,
  outcomeOf,
  type Outcome,
  type OutcomeRow,
} from '../admissions/outcomes.js';

export interface Batch {
  batchId: string;
  /** Epoch milliseconds. */
  acceptedAt: number;
  completedAt: number | null;
  total: number;
  admitted: number;
  denied: number;
  approvalRequired: number;
  refused: number;
  invalid: number;
  pending: number;
  /** Items that repeat an earlier admission, in this batch or before it. */
  replayed: number;
  /** Items decided since the batch was accepted. */
  settled: number;
  /** Milliseconds from acceptance to completion, or to now, by the database clock. */
  elapsedMs: number;
}

type BatchRow = WithDates<Batch, 'acceptedAt' | 'completedAt'>;

const columns = (sql: Db) => sql`
  b.batch_id as "batchId", b.accepted_at as "acceptedAt", g.completed_at as "completedAt", b.total,
  g.admitted, g.denied, g.approval_required as "approvalRequired", g.refused, g.invalid, g.pending, g.replayed, g.awaited - g.pending as settled,
  (extract(epoch from coalesce(g.completed_at, clock_timestamp()) - b.accepted_at) * 1000)::float8
    as "elapsedMs"`;

const batchOf = (row: BatchRow): Batch => ({ ...inMs(row), batchId: batchIdOf(row.batchId) });

/** One of the tenant's batches, or null. Reads two rows, regardless of the number of items. */
export function readBatch(sql: Pool, tenantNo: number, batchId: string): Promise<Batch | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const [row] = await tx<BatchRow[]>`
      select ${columns(tx)} from svc.batch b join svc.batch_progress g using (batch_id)
      where b.batch_id = ${hexOf(batchId)} and b.tenant_no = ${tenantNo}`;
    return row === undefined ? null : batchOf(row);
  });
}

/** The tenant's batches after `after`, newest first. */
export const listBatches: TenantList<Batch> = (sql, tenantNo, limit, after) =>
  asTenants(sql, [tenantNo], async (tx) => {
    const rows = await tx<BatchRow[]>`
      select ${columns(tx)} from svc.batch b join svc.batch_progress g using (batch_id)
      where b.tenant_no = ${tenantNo}
        ${pageAfter(tx, ['b.accepted_at', 'b.batch_id'], limit, after, hexOf)}`;
    return rows.map(batchOf);
  });

/** The problem of an invalid item, found when the batch was accepted. */
export interface ItemProblem {
  code: string;
  detail: string;
  errors?: { pointer: string; detail: string }[];
}

export type ItemOutcome =
  | { index: number; state: 'invalid'; problem: ItemProblem }
  /** An invalid item whose problem was erased with its tenant. */
  | { index: number; state: 'erased' }
  | {
      index: number;
      state: 'accepted';
      proofId: string;
      replayed: boolean;
      outcome: Outcome | null;
    };

interface ItemRow extends OutcomeRow {
  index: number;
  replayed: boolean | null;
}

/** The outcomes of up to `limit` items of one of the tenant's batches from item `from` on; null for an unknown batch. */
export function batchOutcomes(
  sql: Pool,
  tenantNo: number,
  batchId: string,
  from: number,
  limit: number,
): Promise<{ requestId: string; items: ItemOutcome[] } | null> {
  const id = hexOf(batchId);
  const until = from + limit;
  return asTenants(sql, [tenantNo], async (tx) => {
    const [batches, problems, rows, emptied] = await Promise.all([
      tx<{ requestId: string }[]>`
        select request_id as "requestId" from svc.batch where batch_id = ${id} and tenant_no = ${tenantNo}`,
      tx<{ problems: Buffer }[]>`
        select p.problems from svc.batch b join svc.batch_part p using (batch_id)
        where b.batch_id = ${id} and b.tenant_no = ${tenantNo} and p.problems is not null
          and p.first_index < ${until} and p.first_index + cardinality(p.proof_ids) > ${from}`,
      tx<ItemRow[]>`
        select c.first_index + u.n - 1 as index, u.replayed, ${outcomeColumns(tx)}
        from svc.batch b
        join svc.batch_part c using (batch_id)
        cross join lateral unnest(c.proof_ids, c.replayed) with ordinality as u(proof_id, replayed, n)
        join svc.outcome o on o.proof_id = u.proof_id and o.tenant_no = b.tenant_no
        where b.batch_id = ${id} and b.tenant_no = ${tenantNo}
          and c.first_index < ${until} and c.first_index + cardinality(c.proof_ids) > ${from}
          and c.first_index + u.n - 1 >= ${from} and c.first_index + u.n - 1 < ${until}`,
      tx<{ index: number }[]>`
        select p.first_index + u.n - 1 as index
        from svc.batch b
        join svc.batch_part p using (batch_id)
        cross join lateral unnest(p.proof_ids) with ordinality as u(proof_id, n)
        where b.batch_id = ${id} and b.tenant_no = ${tenantNo} and b.items_hash is null
          and p.problems is null and u.proof_id is null
          and p.first_index < ${until} and p.first_index + cardinality(p.proof_ids) > ${from}`,
    ]);
    const [batch] = batches;
    if (batch === undefined) return null;
    const items = [
      ...problems.flatMap((part) => invalidItems(part.problems)),
      ...rows.map(acceptedItem),
      ...emptied.map(({ index }): ItemOutcome => ({ index, state: 'erased' })),
    ];
    return {
      requestId: batch.requestId,
      items: items
        .filter(({ index }) => index >= from && index < until)
        .sort((a, b) => a.index - b.index),
    };
  });
}

function invalidItems(problems: Buffer): ItemOutcome[] {
  const found = JSON.parse(problems.toString('utf8')) as Record<string, ItemProblem>;
  return Object.entries(found).map(([index, problem]) => ({
    index: Number(index),
    state: 'invalid',
    problem,
  }));
}

function acceptedItem(row: ItemRow): ItemOutcome {
  return {
    index: row.index,
    state: 'accepted',
    proofId: row.proofId,
    replayed: row.replayed === true,
    outcome: outcomeOf(row),
  };
}
