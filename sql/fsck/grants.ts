import type { Db } from '../db/transaction.js';
import { fromUuid, packageIdOf, packageUuid } from '../db/columns.js';

export interface CheckedPackage {
  packageId: string;
  /** In hex. */
  membersHash: string;
  proofIds: string[];
  /** Positions are contiguous from 0, and each member is an admission of the package's tenant. */
  areFit: boolean;
  /** The change number of its creation; 0 without one. */
  change: number;
  madeAt: Date;
}

/** Packages after `after`, in order of their ids. */
export async function packagesFrom(
  sql: Db,
  after: string,
  limit: number,
): Promise<CheckedPackage[]> {
  const rows = await sql<
    {
      package_id: string;
      members_hash: Buffer;
      proof_ids: string[];
      fit: boolean;
      change: number | null;
      created_at: Date;
    }[]
  >`
    select k.package_id::text, k.members_hash, k.created_at, m.proof_ids, m.fit, c.change
    from (select * from svc.trust_package where package_id > ${packageUuid(after)}::uuid
      order by package_id limit ${limit}) k
    cross join lateral (select
        coalesce(array_agg(m.proof_id::text order by m.position), '{}') as proof_ids,
        coalesce(max(m.position) = count(*) - 1 and bool_and(p.tenant_no is not null
          and p.tenant_no = k.tenant_no and p.effect = 'ADMIT' and not p.is_outcome), false) as fit
      from svc.package_member m left join svc.proof p using (proof_id)
      where m.package_id = k.package_id) m
    left join (select package_id, min(change_no) as change from svc.grant_change
      where package_id > ${packageUuid(after)}::uuid group by package_id) c
      on c.package_id = k.package_id
    order by k.package_id`;
  return rows.map((row) => ({
    packageId: packageIdOf(row.package_id),
    membersHash: row.members_hash.toString('hex'),
    proofIds: row.proof_ids.map(fromUuid),
    areFit: row.fit,
    change: Number(row.change ?? 0),
    madeAt: row.created_at,
  }));
}

export interface CheckedToken {
  /** In hex. */
  tokenHash: string;
  target:
    { artifactKind: string; proofId: string } | { artifactKind: 'package'; packageId: string };
  hasTarget: boolean;
  expiresAt: Date | null;
  isRevoked: boolean;
  expiredAt: Date | null;
  /** The last of creation, revocation and recorded expiry. */
  changedAt: Date;
  dueAt: Date | null;
  /** The number of its changes. */
  changes: number;
  /** Its largest change number. */
  lastChange: number;
}

/** Share tokens after `after` (hex), in order of their hashes. */
export async function tokensFrom(sql: Db, after: string, limit: number): Promise<CheckedToken[]> {
  const rows = await sql<
    {
      token_hash: Buffer;
      artifact_kind: string;
      proof_id: string | null;
      package_id: string | null;
      has_target: boolean;
      expires_at: Date | null;
      revoked: boolean;
      expired_at: Date | null;
      changed_at: Date;
      due_at: Date | null;
    }[]
  >`
    select t.token_hash, t.artifact_kind, t.proof_id::text, t.package_id::text, t.expires_at,
      (select true from svc.share_revocation r where r.token_hash = t.token_hash) is not null as revoked,
      (select expired_at from svc.share_expiry e where e.token_hash = t.token_hash) as expired_at,
      greatest(t.created_at,
        (select revoked_at from svc.share_revocation r where r.token_hash = t.token_hash),
        (select expired_at from svc.share_expiry e where e.token_hash = t.token_hash)) as changed_at,
      (select expires_at from svc.share_due d where d.token_hash = t.token_hash) as due_at,
      case when t.package_id is null
        then (select true from svc.proof p where p.proof_id = t.proof_id and p.tenant_no = t.tenant_no
          and (p.effect = 'ADMIT' and not p.is_outcome or t.artifact_kind = 'proof'))
        else (select true from svc.trust_package k
          where k.package_id = t.package_id and k.tenant_no = t.tenant_no) end is not null as has_target
    from svc.share_token t where t.token_hash > ${Buffer.from(after, 'hex')}
    order by t.token_hash limit ${limit}`;
  const hashes = rows.map((row) => row.token_hash.toString('hex'));
  const changes = await sql<{ hash: string; changes: number; last: number }[]>`
    select encode(token_hash, 'hex') as hash, count(*)::integer as changes, max(change_no) as last
    from svc.grant_change
    where token_hash in (select decode(hash, 'hex') from unnest(${hashes}::text[]) as asked(hash))
    group by token_hash`;
  const byHash = new Map(changes.map((row) => [row.hash, row]));
  return rows.map((row) => {
    const tokenHash = row.token_hash.toString('hex');
    return {
      tokenHash,
      target:
        row.package_id === null
          ? { artifactKind: row.artifact_kind, proofId: fromUuid(row.proof_id ?? '') }
          : { artifactKind: 'package', packageId: packageIdOf(row.package_id) },
      hasTarget: row.has_target,
      expiresAt: row.expires_at,
      isRevoked: row.revoked,
      expiredAt: row.expired_at,
      changedAt: row.changed_at,
      dueAt: row.due_at,
      changes: byHash.get(tokenHash)?.changes ?? 0,
      lastChange: Number(byHash.get(tokenHash)?.last ?? 0),
    };
  });
}

/** The number of changes, the largest, the counter's value, and packages without a change. */
export async function grantNumbers(
  sql: Db,
): Promise<{ count: number; last: number; head: number; packagesWithout: string[] }> {
  const [row] = await sql<{ count: number; last: number; head: number }[]>`
    select (select count(*) from svc.grant_change) as count,
      coalesce((select max(change_no) from svc.grant_change), 0) as last, change_no as head
    from svc.grant_head`;
  const without = await sql<{ package_id: string }[]>`
    select package_id::text from svc.trust_package where package_id not in (
      select package_id from svc.grant_change where package_id is not null)
    order by package_id limit 100`;
  return {
    count: Number(row?.count ?? 0),
    last: Number(row?.last ?? 0),
    head: Number(row?.head ?? 0),
    packagesWithout: without.map(({ package_id }) => packageIdOf(package_id)),
  };
}

/**
 * The first change after `after` of a package with a member proof that is missing or at leaf `size` or
 * later; null when there is no such change.
 */
export async function firstWaitingChange(
  sql: Db,
  after: number,
  size: number,
): Promise<number | null> {
  const [row] = await sql<{ first: number | null }[]>`
    select min(c.change_no) as first from svc.grant_change c
    join svc.package_member m using (package_id) left join svc.proof p using (proof_id)
    where c.change_no > ${after} and (p.leaf_index is null or p.leaf_index >= ${size})`;
  return row === undefined || row.first === null ? null : Number(row.first);
}
