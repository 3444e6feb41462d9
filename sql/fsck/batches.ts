import type { Db } from '../db/transaction.js';
import { batchIdOf, hexOf } from '../db/columns.js';

type ItemCounts = Record<'admitted' | 'denied' | 'refused' | 'invalid' | 'replayed', number>;

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
  counted: (ItemCounts & { pending: number }) | null;
  found: ItemCounts;
}

/** Batches after `after`, in order of their ids. */
export async function batchesFrom(sql: Db, after: string, limit: number): Promise<CheckedBatch[]> {
  const rows = await sql<CheckedBatch[]>`
    select b.batch_id as "batchId", b.total, encode(b.items_hash, 'hex') as "itemsHash",
      encode(items.hash, 'hex') as "foundHash", parts.whole as "arePartsWhole",
      g.completed_at is not null as "isComplete", items.strays, items.erased,
      case when g.batch_id is not null then json_build_object('admitted', g.admitted,
        'denied', g.denied, 'refused', g.refused, 'invalid', g.invalid, 'replayed', g.replayed,
        'pending', g.pending) end as counted,
      json_build_object('admitted', items.admitted, 'denied', items.denied, 'refused', items.refused,
        'invalid', items.invalid, 'replayed', items.replayed) as found
    from (select * from svc.batch where batch_id > ${hexOf(after)}::uuid
      order by batch_id limit ${limit}) b
    left join svc.batch_progress g using (batch_id)
    cross join lateral (
      select coalesce(sum(size) = b.total and bool_and(first_index = before), false) as whole from (
        select first_index, cardinality(proof_ids) as size,
          coalesce(sum(cardinality(proof_ids)) over (order by first_index
            rows between unbounded preceding and 1 preceding), 0) as before
        from svc.batch_part where batch_id = b.batch_id) p) parts
    cross join lateral (
      select count(*) filter (where p.effect = 'ADMIT') as admitted,
        count(*) filter (where p.effect = 'DENY') as denied,
        count(*) filter (where p.proof_id is null and i.refused) as refused,
        count(*) filter (where u.proof_id is null) as invalid,
        count(*) filter (where u.replayed) as replayed,
        count(*) filter (where u.proof_id is not null and i.proof_id is null) as strays,
        count(*) filter (where i.proof_id is not null and i.request_hash is null) as erased,
        case when bool_and(i.request_hash is not null) then
          sha256(string_agg(decode(lpad(i.lane::text, 2, '0'), 'hex') || i.request_hash, ''
            order by t.first_index, u.n)) end as hash
      from svc.batch_part t
      cross join lateral unnest(t.proof_ids, t.replayed) with ordinality as u(proof_id, replayed, n)
      left join svc.proof p on p.proof_id = u.proof_id
      left join svc.intake i on i.proof_id = u.proof_id
      where t.batch_id = b.batch_id) items
    order by b.batch_id`;
  return rows.map((row) => ({ ...row, batchId: batchIdOf(row.batchId) }));
}
