import type { Db, Transaction } from '../db/transaction.js';
import { hexOf, packageIdOf } from '../db/columns.js';
import { type ShareTarget, type TargetColumns, withTarget } from './share-tokens.js';

/** A token (by hex hash) was created, revoked or has expired, or a package was created. */
export type ShareChange = { changeNo: number } & ({ tokenHash: string } | { packageId: string });

/** Changes of tokens and packages after `changeNo`, in commit order and without gaps. */
export async function shareChangesSince(
  sql: Db,
  changeNo: number,
  limit: number,
): Promise<ShareChange[]> {
  const rows = await sql<{ no: number; tokenHash: string; packageId: string | null }[]>`
    select change_no as no, encode(token_hash, 'hex') as "tokenHash", package_id as "packageId"
    from svc.grant_change where change_no > ${changeNo} order by change_no limit ${limit}`;
  return rows.map(({ no, tokenHash, packageId }) => ({
    changeNo: no,
    ...(packageId === null ? { tokenHash } : { packageId: packageIdOf(packageId) }),
  }));
}

/**
 * The targets of tokens by hex hash; null for a token that is revoked or has a recorded expiry. Reads
 * no clock: the verifier records expiries.
 */
export async function sharesNow(
  sql: Db,
  tokenHashes: readonly string[],
): Promise<Map<string, ShareTarget | null>> {
  const rows = await sql<(TargetColumns & { hash: string; ended: boolean })[]>`
    select asked.hash, t.artifact_kind as "artifactKind", t.proof_id as "proofId",
      t.package_id as "packageId",
      exists (select from svc.share_revocation r where r.token_hash = t.token_hash)
        or exists (select from svc.share_expiry e where e.token_hash = t.token_hash) as ended
    from unnest(${[...tokenHashes]}::text[]) as asked(hash)
    join svc.share_token t on t.token_hash = decode(asked.hash, 'hex')`;
  return new Map(rows.map((row) => [row.hash, row.ended ? null : withTarget(row).target]));
}

export interface PackageRow {
  packageId: string;
  proofIds: string[];
  /** Hex; stored when the package was created. */
  membersHash: string;
}

/** Packages of any tenant, with their members. */
export async function packageRows(sql: Db, packageIds: readonly string[]): Promise<PackageRow[]> {
  const rows = await sql<PackageRow[]>`
    select k.package_id as "packageId", encode(k.members_hash, 'hex') as "membersHash",
      coalesce((select array_agg(proof_id order by position) from svc.package_member
        where package_id = k.package_id), '{}') as "proofIds"
    from svc.trust_package k
    where k.package_id = any(${packageIds.map(hexOf)}::uuid[])`;
  return rows.map((row) => ({ ...row, packageId: packageIdOf(row.packageId) }));
}

/** The ids of packages, of any tenant, that contain one of the proofs, in order. */
export async function packagesWith(sql: Db, proofIds: readonly string[]): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    select distinct package_id as id from svc.package_member
    where proof_id = any(${[...proofIds]}::uuid[]) order by package_id`;
  return rows.map(({ id }) => packageIdOf(id));
}

/**
 * Records expired tokens by the database clock and returns their number. Must not run concurrently: the
 * second scan would wait for the first and then find no rows.
 */
export async function expireShares(tx: Transaction, limit: number): Promise<number> {
  const over = await tx`
    with over as (
      delete from svc.share_due where token_hash in (
        select token_hash from svc.share_due where expires_at <= now()
        order by expires_at limit ${limit})
      returning token_hash)
    insert into svc.share_expiry (token_hash) select token_hash from over`;
  return over.count;
}
