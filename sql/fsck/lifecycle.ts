import type { Decided } from '#protocol/status';
import { firstRow, hexOf, packageIdOf } from '../db/columns.js';
import type { Db } from '../db/transaction.js';
import {
  type PackageRow,
  type ShareTarget,
  type TargetColumns,
  withTarget,
} from '../lifecycle/share-tokens.js';

export interface CheckedPackage extends PackageRow {
  /** The greatest leaf index of the members; -1 without members, null when a member has no leaf. */
  newestLeaf: number | null;
  /** Whether positions are contiguous from 0, and all members are the tenant's admissions. */
  areFit: boolean;
  /** The `change_no` of the package's creation in `svc.grant_change`; 0 without such a row. */
  change: number;
  madeAt: Date;
}

/** Packages after `after`, in order of their ids. */
export async function packagesFrom(sql: Db, after: string, limit: number) {
  const rows = await sql<CheckedPackage[]>`
    select k.package_id as "packageId", encode(k.members_hash, 'hex') as "membersHash",
      k.created_at as "madeAt", m.ids as "proofIds", m.newest as "newestLeaf", m.fit as "areFit",
      coalesce(c.change, 0) as change
    from (select * from svc.trust_package where package_id > ${hexOf(after)}::uuid
      order by package_id limit ${limit}) k
    cross join lateral (select
        coalesce(array_agg(m.proof_id order by m.position), '{}') as ids,
        case when count(e.leaf_index) = count(*) then coalesce(max(e.leaf_index), -1) end as newest,
        coalesce(max(m.position) = count(*) - 1 and bool_and(e.tenant_no is not null
          and e.tenant_no = k.tenant_no and e.effect = 'ADMIT' and not e.is_outcome), false) as fit
      from svc.package_member m left join svc.log_entry e using (proof_id)
      where m.package_id = k.package_id) m
    left join (select package_id, min(change_no) as change from svc.grant_change
      where package_id > ${hexOf(after)}::uuid group by package_id) c
      on c.package_id = k.package_id
    order by k.package_id`;
  return rows.map((row) => ({ ...row, packageId: packageIdOf(row.packageId) }));
}

export interface CheckedToken {
  /** In hex. */
  tokenHash: string;
  target: ShareTarget;
  hasTarget: boolean;
  expiresAt: Date | null;
  isRevoked: boolean;
  expiredAt: Date | null;
  /** Time of the latest change: creation, revocation or recorded expiry. */
  changedAt: Date;
  dueAt: Date | null;
  changes: number;
  lastChange: number;
}

type TokenRow = Omit<CheckedToken, 'target'> & TargetColumns;

/** Share tokens after `after` (hex), in order of their hashes. */
export async function tokensFrom(sql: Db, after: string, limit: number): Promise<CheckedToken[]> {
  const rows = await sql<TokenRow[]>`
    with page as (
      select * from svc.share_token t where t.token_hash > ${Buffer.from(after, 'hex')}
      order by t.token_hash limit ${limit})
    select encode(t.token_hash, 'hex') as "tokenHash", t.artifact_kind as "artifactKind",
      t.proof_id as "proofId", t.package_id as "packageId", t.expires_at as "expiresAt",
      r.token_hash is not null as "isRevoked", e.expired_at as "expiredAt",
      greatest(t.created_at, r.revoked_at, e.expired_at) as "changedAt", d.expires_at as "dueAt",
      case when t.package_id is null
        then (select true from svc.log_entry e where e.proof_id = t.proof_id and e.tenant_no = t.tenant_no
          and (e.effect = 'ADMIT' and not e.is_outcome or t.artifact_kind = 'proof'))
        else (select true from svc.trust_package k
          where k.package_id = t.package_id and k.tenant_no = t.tenant_no) end is not null as "hasTarget",
      coalesce(c.changes, 0) as changes, coalesce(c.last, 0) as "lastChange"
    from page t
    left join lateral (select * from svc.share_revocation where token_hash = t.token_hash limit 1) r on true
    left join lateral (select * from svc.share_expiry where token_hash = t.token_hash limit 1) e on true
    left join lateral (select * from svc.share_due where token_hash = t.token_hash limit 1) d on true
    left join (select token_hash, count(*) as changes, max(change_no) as last from svc.grant_change
      where token_hash in (select token_hash from page) group by token_hash) c
      on c.token_hash = t.token_hash
    order by t.token_hash`;
  return rows.map(withTarget);
}

/** The number of changes, the largest change number, and the counter's value. */
export async function grantNumbers(sql: Db) {
  const [row] = await sql<[{ count: number; last: number; head: number }]>`
    select (select count(*) from svc.grant_change) as count,
      coalesce((select max(change_no) from svc.grant_change), 0) as last,
      coalesce((select change_no from svc.grant_head), 0) as head`;
  return row;
}

/** The proof that an entry names; null for an unknown proof. */
export const proofAbout = (sql: Db, proofId: string) =>
  firstRow(sql<({ leafIndex: number } & Decided)[]>`
    select leaf_index as "leafIndex", effect, is_outcome as "isOutcome" from svc.log_entry
    where proof_id = ${proofId}::uuid`);

/**
 * The document of the revocation reason with this hash. If it is missing: `gone` when an erasure deleted
 * the document or the entry was adopted, otherwise null.
 *
 * @param reasonHash hex
 */
export async function reasonDocument(
  sql: Db,
  reasonHash: string,
  proofId: string,
  leafIndex: number,
): Promise<Buffer | 'gone' | null> {
  const [row] = await sql<[{ document: Buffer | null; isGone: boolean }]>`
    select r.document, r.reason_hash is not null
        and exists (select from svc.erasure where proof_id = ${proofId}::uuid)
      or exists (select from svc.adoption
        where from_index <= ${leafIndex} and to_index > ${leafIndex}) as "isGone"
    from (select ${Buffer.from(reasonHash, 'hex')}::bytea as reason_hash) asked
    left join svc.revocation_reason r using (reason_hash)`;
  return row.document ?? (row.isGone ? 'gone' : null);
}

/** Completed requests after `after` that were not rejected: the log must have their entries. */
export function settledRequests(sql: Db, after: string, limit: number) {
  return sql<{ requestId: string; proofId: string; artifactKind: string }[]>`
    select request_id as "requestId", proof_id as "proofId", artifact_kind as "artifactKind"
    from svc.revocation_request r
    where request_id > ${after}::uuid and refused is null
      and (select true from svc.revocation_pending q where q.request_id = r.request_id) is null
    order by request_id limit ${limit}`;
}

/** Reason documents after `after` (hex). A document commits in the transaction of its log entry. */
export function reasonsFrom(sql: Db, after: string, limit: number) {
  return sql<{ reasonHash: string; document: Buffer }[]>`
    select encode(reason_hash, 'hex') as "reasonHash", document from svc.revocation_reason
    where document is not null and reason_hash > ${Buffer.from(after, 'hex')}
    order by reason_hash limit ${limit}`;
}
