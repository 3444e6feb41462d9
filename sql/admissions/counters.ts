import {
  type Budget,
  appliedCounters,
  type Counted,
  counterKey,
  type Counters,
  windowOf,
} from '#protocol/policy-input';
import { nativeSha256 } from '#runtime/crypto/node';
import { arrayOf } from '../db/columns.js';
import type { Db, Transaction } from '../db/transaction.js';

/** The counter of one tenant, agent or run in one window. A policy set declares it. */
export interface CounterRef {
  tenantNo: number;
  /** Lower-case hex. */
  key: string;
  /** The UTC day as YYYY-MM-DD, or `run` if the key names a run. */
  period: string;
}

export interface AppliedCounter {
  name: string;
  window: Budget['window'];
  /** Null when the request lacks the agent or the run. */
  ref: CounterRef | null;
}

/** The counters of a policy set that apply to an action. */
export function counterRefs(
  counters: Counters,
  input: Counted,
  { acceptedAt, run, tenantNo }: { acceptedAt: string; run: string | null; tenantNo: number },
): AppliedCounter[] {
  const day = acceptedAt.slice(0, 10);
  return appliedCounters(counters, input).map(([name, counter]) => {
    const key = counterKey(nativeSha256, name, counter, input, run);
    const period = counter.window === 'run' ? 'run' : day;
    const ref = key === null ? null : { tenantNo, key, period };
    return { name, window: windowOf(counter, day, run), ref };
  });
}

export const counterId = ({ tenantNo, key, period }: CounterRef): string =>
  `${tenantNo} ${key} ${period}`;

/**
 * Values of existing counters by id. The caller holds the append lock, so they cannot change.
 */
export async function readCounters(
  sql: Db,
  refs: readonly CounterRef[],
): Promise<Map<string, number>> {
  if (refs.length === 0) return new Map();
  const rows = await sql<(CounterRef & { value: number })[]>`
    select c.tenant_no as "tenantNo", encode(c.key, 'hex') as key, c.period, c.value
    from (select distinct * from unnest(${arrayOf(refs.map(({ tenantNo }) => tenantNo))}::integer[],
      ${arrayOf(refs.map(({ key }) => key))}::text[],
      ${arrayOf(refs.map(({ period }) => period))}::text[])) as r(tenant_no, key, period)
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
      ${arrayOf(rows.map(({ period }) => period))}::text[],
      ${arrayOf(rows.map(({ name }) => name))}::text[],
      ${arrayOf(rows.map(({ value }) => value))}::bigint[],
      ${arrayOf(rows.map(({ leafIndex }) => leafIndex))}::bigint[])
      as r(tenant_no, key, period, name, value, leaf_index)
    on conflict (tenant_no, key, period)
      do update set value = excluded.value, leaf_index = excluded.leaf_index`;
}

/** The position before the first counter, to start a read of all counters. */
export const FIRST_COUNTER: CounterRef = { tenantNo: 0, key: '', period: '' };

/** The counters after the given counter, in the order of tenant, key and period. */
export function counterRows(sql: Db, { tenantNo, key, period }: CounterRef): Promise<CounterRow[]> {
  return sql<CounterRow[]>`
    select tenant_no as "tenantNo", encode(key, 'hex') as key, period, name, value,
      leaf_index as "leafIndex"
    from svc.counter where (tenant_no, key, period) > (${tenantNo}, decode(${key}, 'hex'), ${period})
    order by tenant_no, key, period limit 1000`;
}
