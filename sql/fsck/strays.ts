import type { Pool } from '../db/transaction.js';
import { batchIdOf, packageIdOf } from '../db/columns.js';

/** Orphan rows: a scan that starts from their missing parents cannot find them. */
export interface Strays {
  /** Rows of a missing batch. */
  batches: string[];
  /** Pending admissions of a batch without a chunk lease. */
  withoutTurn: string[];
  /** Members of a missing package. */
  packages: string[];
  /** Change numbers of a missing token or package. */
  changes: number[];
  /** Erasure records of an unknown admission, or with a wrong leaf index. */
  erasures: string[];
}

/** One statement per kind, so that concurrent inserts are seen completely. */
export async function readStrays(sql: Pool, limit: number): Promise<Strays> {
  const batches = await sql<{ id: string }[]>`
    select distinct s.batch_id as id from (
      select batch_id from svc.batch_part union select batch_id from svc.batch_progress
      union select batch_id from svc.intake_pending where batch_id is not null) s
    left join svc.batch b using (batch_id) where b.batch_id is null order by id limit ${limit}`;
  const withoutTurn = await sql<{ id: string }[]>`
    select q.proof_id as id from svc.intake_pending q
    join svc.batch b using (batch_id)
    where q.proof_id not in (
      select u.proof_id from svc.batch_turn t join svc.batch_part p using (batch_id, first_index)
      cross join lateral unnest(p.proof_ids) as u(proof_id) where u.proof_id is not null)
    order by id limit ${limit}`;
  const packages = await sql<{ id: string }[]>`
    select distinct m.package_id as id from svc.package_member m
    left join svc.trust_package k using (package_id)
    where k.package_id is null order by id limit ${limit}`;
  const changes = await sql<{ no: number }[]>`
    select c.change_no as no from svc.grant_change c
    left join svc.share_token t on t.token_hash = c.token_hash
    left join svc.trust_package k on k.package_id = c.package_id
    where t.token_hash is null and k.package_id is null order by c.change_no limit ${limit}`;
  const erasures = await sql<{ id: string }[]>`
    select e.proof_id as id from svc.erasure e
    left join svc.intake i using (proof_id) left join svc.proof p using (proof_id)
    where (i.proof_id is null and p.proof_id is null)
      or (p.proof_id is not null and e.leaf_index is distinct from p.leaf_index)
    order by id limit ${limit}`;
  return {
    batches: batches.map(({ id }) => batchIdOf(id)),
    withoutTurn: withoutTurn.map(({ id }) => id),
    packages: packages.map(({ id }) => packageIdOf(id)),
    changes: changes.map(({ no }) => no),
    erasures: erasures.map(({ id }) => id),
  };
}
