import type { Db } from '../db/transaction.js';

/** The W3C trace context in which an admission was accepted. */
export interface Trace {
  proofId: string;
  traceparent: string;
}

/** Limit for each statement: after a break, the contexts of the last hour may be millions. */
const DELETED_AT_ONCE = 10_000;

/** Stores the contexts of sampled admissions, and deletes contexts that are older than an hour. */
export async function storeTraces(sql: Db, traces: readonly Trace[]): Promise<void> {
  await sql`
    with old as (delete from svc.trace where created_at <= (select max(created_at) from (
      select created_at from svc.trace where created_at < now() - interval '1 hour'
      order by created_at limit ${DELETED_AT_ONCE}) oldest))
    insert into svc.trace (proof_id, traceparent)
    select * from unnest(${traces.map(({ proofId }) => proofId)}::uuid[],
      ${traces.map(({ traceparent }) => traceparent)}::text[])
    on conflict do nothing`;
}

const columns = (sql: Db) => sql`replace(t.proof_id::text, '-', '') as "proofId", t.traceparent`;

export const tracesOf = (sql: Db, proofIds: readonly string[]): Promise<Trace[]> => sql<Trace[]>`
  select ${columns(sql)} from svc.trace t where t.proof_id = any(${proofIds as string[]}::uuid[])`;

/** The contexts of the proofs in leaves `from` to `to` - 1. */
export const tracesOfLeaves = (sql: Db, from: number, to: number): Promise<Trace[]> => sql<Trace[]>`
  select ${columns(sql)} from svc.trace t join svc.log_entry e using (proof_id)
  where e.leaf_index >= ${from} and e.leaf_index < ${to}`;
