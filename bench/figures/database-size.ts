import type { Db } from '#sql/db/transaction';

export interface DatabaseSize {
  /** Of all tables of the registry, with their indexes and what is stored out of line. */
  bytes: number;
  proofs: number;
}

/** What the registry takes in Postgres; the write-ahead log and the queue are no part of it. */
export async function databaseSize(owner: Db): Promise<DatabaseSize> {
  const [row] = await owner<DatabaseSize[]>`
    select (select sum(pg_total_relation_size(oid))::bigint from pg_class
        where relkind = 'r' and relnamespace = 'svc'::regnamespace) as bytes,
      (select count(*) from svc.proof) as proofs`;
  return { bytes: row?.bytes ?? 0, proofs: row?.proofs ?? 0 };
}
