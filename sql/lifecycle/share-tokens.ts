import { fromHex } from '#protocol/bytes';
import { isProofOnly, type ArtifactKind } from '#protocol/status';
import { comparableTime, hexOf, inMs, packageIdOf, type WithDates } from '../db/columns.js';
import { pageAfter, type TenantList } from '../db/paging.js';
import { type Db, type Pool, type Transaction, asTenants } from '../db/transaction.js';
import { decidedOf } from './revocations.js';

export type ShareTarget =
  { artifactKind: ArtifactKind; proofId: string } | { artifactKind: 'package'; packageId: string };

export interface NewShareToken {
  /** SHA-256 of the token; the token itself is never stored. */
  tokenHash: Uint8Array;
  keyNo: number;
  target: ShareTarget;
  /** Epoch milliseconds; null: no expiry. */
  expiresAt: number | null;
}

export type CreateOutcome =
  /** Epoch milliseconds. */
  | { outcome: 'created'; createdAt: number }
  /** The tenant has no proof or package with this id. */
  | { outcome: 'unknown_target' }
  /** Only the admission of an action has artifacts besides its proof. */
  | { outcome: 'absent_artifact' }
  | { outcome: 'expiry_over' };

/** Stores the hash of a token for an artifact of the tenant's own proof, or for its own package. */
export function createShareToken(
  sql: Pool,
  tenantNo: number,
  token: NewShareToken,
): Promise<CreateOutcome> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const fault = await faultOf(tx, tenantNo, token.target);
    if (fault !== null) return { outcome: fault };
    const createdAt = await insertToken(tx, tenantNo, token);
    return createdAt === null ? { outcome: 'expiry_over' } : { outcome: 'created', createdAt };
  });
}

async function faultOf(
  tx: Db,
  tenantNo: number,
  target: ShareTarget,
): Promise<'unknown_target' | 'absent_artifact' | null> {
  if (target.artifactKind === 'package') {
    const [found] = await tx`
      select from svc.trust_package
      where package_id = ${hexOf(target.packageId)}::uuid and tenant_no = ${tenantNo}`;
    return found === undefined ? 'unknown_target' : null;
  }
  const proof = await decidedOf(tx, tenantNo, target.proofId);
  if (proof === null) return 'unknown_target';
  return target.artifactKind !== 'proof' && isProofOnly(proof) ? 'absent_artifact' : null;
}

/** Returns the creation time by the database clock; null when the expiry has passed. */
async function insertToken(
  tx: Transaction,
  tenantNo: number,
  { tokenHash, keyNo, target, expiresAt }: NewShareToken,
): Promise<number | null> {
  const [row] = await tx<{ createdAt: Date }[]>`
    insert into svc.share_token
      (token_hash, tenant_no, key_no, artifact_kind, proof_id, package_id, created_at, expires_at)
    select ${tokenHash}, ${tenantNo}, ${keyNo}, ${target.artifactKind},
      ${'proofId' in target ? target.proofId : null}::uuid,
      ${'packageId' in target ? hexOf(target.packageId) : null}::uuid, now.at, wanted.until
    from (select date_trunc('milliseconds', clock_timestamp()) as at) now,
      (select ${expiresAt === null ? null : comparableTime(expiresAt)}::timestamptz as until) wanted
    where wanted.until is null or wanted.until > now.at
    returning created_at as "createdAt"`;
  return row?.createdAt.getTime() ?? null;
}

export interface ShareToken {
  tokenHash: Buffer;
  target: ShareTarget;
  /** Times are in epoch milliseconds. */
  createdAt: number;
  expiresAt: number | null;
  revokedAt: number | null;
}

export interface TargetColumns {
  artifactKind: ShareTarget['artifactKind'];
  proofId: string | null;
  packageId: string | null;
}

export function withTarget<R extends TargetColumns>(
  row: R,
): Omit<R, keyof TargetColumns> & { target: ShareTarget } {
  const { artifactKind, proofId, packageId, ...rest } = row;
  const target: ShareTarget =
    artifactKind === 'package'
      ? { artifactKind, packageId: packageIdOf(packageId ?? '') }
      : { artifactKind, proofId: proofId ?? '' };
  return { ...rest, target };
}

type ShareTokenRow = TargetColumns &
  WithDates<Omit<ShareToken, 'target'>, 'createdAt' | 'expiresAt' | 'revokedAt'>;

/** The tenant's tokens after `after`, newest first, including revoked and expired ones. */
export const listShareTokens: TenantList<ShareToken> = (sql, tenantNo, limit, after) =>
  asTenants(sql, [tenantNo], async (tx) => {
    const rows = await tx<ShareTokenRow[]>`
      select t.token_hash as "tokenHash", t.artifact_kind as "artifactKind", t.proof_id as "proofId",
        t.package_id as "packageId", t.created_at as "createdAt", t.expires_at as "expiresAt",
        r.revoked_at as "revokedAt"
      from svc.share_token t left join svc.share_revocation r using (token_hash)
      where t.tenant_no = ${tenantNo}
        ${pageAfter(tx, ['t.created_at', 't.token_hash'], limit, after, fromHex)}`;
    return rows.map((row) => withTarget(inMs(row)));
  });

/**
 * Revokes one of the tenant's tokens permanently; idempotent.
 *
 * @returns false when the tenant has no token with that hash
 */
export function revokeShareToken(
  sql: Pool,
  tenantNo: number,
  token: { tokenHash: Uint8Array; keyNo: number },
): Promise<boolean> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const { tokenHash: hash } = token;
    const [own] = await tx`
      select from svc.share_token where token_hash = ${hash} and tenant_no = ${tenantNo}`;
    if (own === undefined) return false;
    await tx`
      insert into svc.share_revocation (token_hash, key_no) values (${hash}, ${token.keyNo})
      on conflict (token_hash) do nothing`;
    return true;
  });
}

/** The creation, revocation or expiry of a token (by hex hash), or the creation of a package. */
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
  /** In hex, as stored when the package was created. */
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

/**
 * Records tokens that have expired at `now`, in epoch milliseconds, and returns their number. Must not run
 * concurrently: a second scan would wait for the first and then find no rows.
 */
export async function expireShares(tx: Transaction, now: number, limit: number): Promise<number> {
  const over = await tx`
    with over as (
      delete from svc.share_due where token_hash in (
        select token_hash from svc.share_due where expires_at <= ${new Date(now)}
        order by expires_at limit ${limit})
      returning token_hash)
    insert into svc.share_expiry (token_hash) select token_hash from over`;
  return over.count;
}
