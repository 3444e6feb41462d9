import type { Db } from '../db/transaction.js';
import { batchIdOf, batchUuid } from '../db/columns.js';

/** A batch with its stored counts and those computed from its items. */
export interface CheckedBatch {
  batchId: string;
  total: number;
  /** The chunks are contiguous and add up to the batch's number of items. */
  arePartsWhole: boolean;
  /** Items that point to a missing admission. */
  strays: number;
  /** Items whose admission was erased. */
  erased: number;
  /** Hex; null when an item was erased. */
  itemsHash: string | null;
  /** The hash computed from the items; null with invalid items, whose bytes are not stored. */
  foundHash: string | null;
  isComplete: boolean;
  counted: Record<
    'admitted' | 'denied' | 'refused' | 'invalid' | 'replayed' | 'pending',
    number
  > | null;
  found: Record<'admitted' | 'denied' | 'refused' | 'invalid' | 'replayed', number>;
}

/** Batches after `after`, in order of their ids. */
export async function batchesFrom(sql: Db, after: string, limit: number): Promise<CheckedBatch[]> {
  const rows = await sql<
    (Record<string, number | null> & {
      batch_id: string;
      whole: boolean;
      complete: boolean | null;
      items_hash: Buffer | null;
      found_hash: Buffer | null;
    })[]
  >`
    select b.batch_id::text, b.total, b.items_hash, items.found_hash, parts.whole, g.completed_at is not null as complete,
      g.admitted, g.denied, g.refused, g.invalid, g.replayed, g.pending,
      items.admitted as found_admitted, items.denied as found_denied,
      items.refused as found_refused, items.invalid as found_invalid,
      items.replayed as found_replayed, items.strays,
      items.erased
    from (select * from svc.batch where batch_id > ${batchUuid(after)}::uuid
      order by batch_id limit ${limit}) b
    left join svc.batch_progress g using (batch_id)
    cross join lateral (
      select coalesce(sum(size) = b.total and bool_and(first_index = before), false) as whole from (
        select first_index, cardinality(proof_ids) as size,
          coalesce(sum(cardinality(proof_ids)) over (order by first_index
            rows between unbounded preceding and 1 preceding), 0) as before
        from svc.batch_part where batch_id = b.batch_id) p) parts
    cross join lateral (
      select count(*) filter (where p.effect = 'ADMIT')::integer as admitted,
        count(*) filter (where p.effect = 'DENY')::integer as denied,
        count(*) filter (where p.proof_id is null and i.refused)::integer as refused,
        count(*) filter (where u.proof_id is null)::integer as invalid,
        count(*) filter (where u.replayed)::integer as replayed,
        count(*) filter (where u.proof_id is not null and i.proof_id is null)::integer as strays,
        count(*) filter (where i.proof_id is not null and i.request_hash is null)::integer as erased,
        case when bool_and(i.request_hash is not null) then
          sha256(string_agg(decode(lpad(i.lane::text, 2, '0'), 'hex') || i.request_hash, ''
            order by t.first_index, u.n)) end as found_hash
      from svc.batch_part t
      cross join lateral unnest(t.proof_ids, t.replayed) with ordinality as u(proof_id, replayed, n)
      left join svc.proof p on p.proof_id = u.proof_id
      left join svc.intake i on i.proof_id = u.proof_id
      where t.batch_id = b.batch_id) items
    order by b.batch_id`;
  const of = (row: (typeof rows)[number], name: string): number => Number(row[name] ?? 0);
  return rows.map((row) => ({
    batchId: batchIdOf(row.batch_id),
    total: of(row, 'total'),
    arePartsWhole: row.whole,
    strays: of(row, 'strays'),
    erased: of(row, 'erased'),
    itemsHash: row.items_hash?.toString('hex') ?? null,
    foundHash: row.found_hash?.toString('hex') ?? null,
    isComplete: row.complete === true,
    counted:
      row['pending'] === null
        ? null
        : {
            admitted: of(row, 'admitted'),
            denied: of(row, 'denied'),
            refused: of(row, 'refused'),
            invalid: of(row, 'invalid'),
            replayed: of(row, 'replayed'),
            pending: of(row, 'pending'),
          },
    found: {
      admitted: of(row, 'found_admitted'),
      denied: of(row, 'found_denied'),
      refused: of(row, 'found_refused'),
      invalid: of(row, 'found_invalid'),
      replayed: of(row, 'found_replayed'),
    },
  }));
}
