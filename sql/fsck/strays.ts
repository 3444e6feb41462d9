import type { Db } from '../db/transaction.js';

type Query = (sql: Db, limit: number) => Promise<{ at: string }[]>;

/**
 * Rows that must not exist, or whose counterpart is missing, each as its table and key. A scan that starts
 * from the missing row cannot find them. Each is one statement, so that it sees concurrent inserts completely.
 */
export const STRAYS = {
  /** Missing batches of other rows. */
  batches: (sql, limit) => sql`
    select distinct 'svc.batch batch_id=batch_' || replace(s.batch_id::text, '-', '') as at from (
      select batch_id from svc.batch_part union select batch_id from svc.batch_progress
      union select batch_id from svc.intake_pending where batch_id is not null) s
    left join svc.batch b using (batch_id) where b.batch_id is null order by at limit ${limit}`,
  /** Pending admissions of a batch without a chunk lease. */
  unleased: (sql, limit) => sql`
    select 'svc.intake_pending proof_id=' || replace(q.proof_id::text, '-', '') as at
    from svc.intake_pending q join svc.batch b using (batch_id)
    where q.proof_id not in (
      select u.proof_id from svc.batch_turn t join svc.batch_part p using (batch_id, first_index)
      cross join lateral unnest(p.proof_ids) as u(proof_id) where u.proof_id is not null)
    order by at limit ${limit}`,
  /** Missing packages of members. */
  packages: (sql, limit) => sql`
    select distinct 'svc.trust_package package_id=pkg_' || replace(m.package_id::text, '-', '') as at
    from svc.package_member m left join svc.trust_package k using (package_id)
    where k.package_id is null order by at limit ${limit}`,
  /** Packages without a change number. */
  unchanged: (sql, limit) => sql`
    select 'svc.grant_change package_id=pkg_' || replace(package_id::text, '-', '') as at
    from svc.trust_package where package_id not in (
      select package_id from svc.grant_change where package_id is not null)
    order by at limit ${limit}`,
  /** Change numbers of a missing token or package. */
  changes: (sql, limit) => sql`
    select 'svc.grant_change change_no=' || c.change_no as at from svc.grant_change c
    left join svc.share_token t on t.token_hash = c.token_hash
    left join svc.trust_package k on k.package_id = c.package_id
    where t.token_hash is null and k.package_id is null order by c.change_no limit ${limit}`,
  /** Erasure records of an unknown admission, or with a wrong leaf index. */
  erasures: (sql, limit) => sql`
    select 'svc.erasure proof_id=' || replace(e.proof_id::text, '-', '') as at from svc.erasure e
    left join svc.intake i using (proof_id) left join svc.proof p using (proof_id)
    where (i.proof_id is null and p.proof_id is null)
      or (p.proof_id is not null and e.leaf_index is distinct from p.leaf_index)
    order by at limit ${limit}`,
  /** Pending rows without an intake row. */
  pending: (sql, limit) => sql`
    select 'svc.intake_pending proof_id=' || replace(q.proof_id::text, '-', '') as at
    from svc.intake_pending q left join svc.intake i using (proof_id)
    where i.proof_id is null order by at limit ${limit}`,
  /** Admissions that share a deduplication key, which the index forbids. */
  duplicates: (sql, limit) => sql`
    select 'svc.intake proof_id='
      || string_agg(replace(proof_id::text, '-', ''), ',' order by proof_id) as at
    from svc.intake where not refused and request_hash is not null
    group by tenant_no, lane, request_hash having count(*) > 1 limit ${limit}`,
  policySets: (sql, limit) => sql`
    select 'svc.policy_set digest=' || encode(digest, 'hex') as at from svc.policy_set
    where sha256(convert_to(manifest, 'UTF8')) is distinct from digest limit ${limit}`,
  fixtures: (sql, limit) => sql`
    select 'svc.fixture fixture_ref=' || fixture_ref as at from svc.fixture
    where sha256(content) is distinct from fixture_hash limit ${limit}`,
} as const satisfies Record<string, Query>;
