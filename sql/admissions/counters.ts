import { arrayOf } from '../db/columns.js';
import type { Db, Transaction } from '../db/transaction.js';

/** A counter of a policy set, of one tenant or agent, in one window. */
export interface CounterRef {
  tenantNo: number;
  /** Lower-case hex. */
  key: string;
  /** The UTC day as YYYY-MM-DD. */
  day: string;
}

export const counterId = ({ tenantNo, key, day }: CounterRef): string =>
  `${tenantNo} ${key} ${day}`;

/**
 * Values of existing counters by id. The caller holds the append lock, so they cannot change.
 */
export async function readCounters(
  sql: Db,
  refs: readonly CounterRef[],
): Promise<Map<string, number>> {
  if (refs.length === 0) return new Map();
  const rows = await sql<(CounterRef & { value: number })[]>`
    select c.tenant_no as "tenantNo", encode(c.key, 'hex') as key, c.period as day, c.value
    from (select distinct * from unnest(${arrayOf(refs.map(({ tenantNo }) => tenantNo))}::integer[],
      ${arrayOf(refs.map(({ key }) => key))}::text[],
      ${arrayOf(refs.map(({ day }) => day))}::text[])) as r(tenant_no, key, period)
    join svc.counter c on c.tenant_no = r.tenant_no and c.key = decode(r.key, 'hex')
      and c.period = r.period`;
  return new Map(rows.map((row) => [counterId(row), row.value]));
}

export interface CounterRow extends CounterRef {
  name: string;
  value: number;
  /** The last proof that changed the counter. */
  leafIndex: number;
}

/** @param rows at most one per counter: ON CONFLICT cannot update a row twice */
export async function setCounters(tx: Transaction, rows: readonly CounterRow[]): Promise<void> {
  if (rows.length === 0) return;
  await tx`
    insert into svc.counter (tenant_no, key, period, name, value, leaf_index)
    select tenant_no, decode(key, 'hex'), period, name, value, leaf_index
    from unnest(${arrayOf(rows.map(({ tenantNo }) => tenantNo))}::integer[],
      ${arrayOf(rows.map(({ key }) => key))}::text[],
      ${arrayOf(rows.map(({ day }) => day))}::text[],
      ${arrayOf(rows.map(({ name }) => name))}::text[],
      ${arrayOf(rows.map(({ value }) => value))}::bigint[],
      ${arrayOf(rows.map(({ leafIndex }) => leafIndex))}::bigint[])
      as r(tenant_no, key, period, name, value, leaf_index)
    on conflict (tenant_no, key, period)
      do update set value = excluded.value, leaf_index = excluded.leaf_index`;
}

/** Before every counter. */
export const FIRST_COUNTER: CounterRef = { tenantNo: 0, key: '', day: '' };

/** The next counters by tenant, key and day. */
export function counterRows(sql: Db, { tenantNo, key, day }: CounterRef): Promise<CounterRow[]> {
  return sql<CounterRow[]>`
    select tenant_no as "tenantNo", encode(key, 'hex') as key, period as day, name, value,
      leaf_index as "leafIndex"
    from svc.counter where (tenant_no, key, period) > (${tenantNo}, decode(${key}, 'hex'), ${day})
    order by tenant_no, key, period limit 1000`;
}
