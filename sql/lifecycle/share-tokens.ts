import { isProofOnly, type ArtifactKind } from '#protocol/status';
import type { Db, Pool, Transaction } from '../db/transaction.js';
import { comparableTime, hexOf, inMs, packageIdOf, type WithDates } from '../db/columns.js';
import { decidedOf } from './revocations.js';
import { asTenants } from '../db/tenant-scope.js';

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
  /** The tenant has no such proof or package. */
  | { outcome: 'unknown_target' }
  /** A denial or an outcome has no artifact but its proof. */
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
  /** Epoch milliseconds, like the others. */
  createdAt: number;
  expiresAt: number | null;
  revokedAt: number | null;
}

export interface ShareTokenPlace {
  createdAt: number;
  tokenHash: Uint8Array;
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
export function listShareTokens(
  sql: Pool,
  tenantNo: number,
  limit: number,
  after: ShareTokenPlace | null,
): Promise<ShareToken[]> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const behind =
      after === null
        ? tx``
        : tx`and (t.created_at, t.token_hash)
            < (${new Date(after.createdAt)}::timestamptz, ${after.tokenHash}::bytea)`;
    const rows = await tx<ShareTokenRow[]>`
      select t.token_hash as "tokenHash", t.artifact_kind as "artifactKind", t.proof_id as "proofId",
        t.package_id as "packageId", t.created_at as "createdAt", t.expires_at as "expiresAt",
        r.revoked_at as "revokedAt"
      from svc.share_token t left join svc.share_revocation r using (token_hash)
      where t.tenant_no = ${tenantNo} ${behind}
      order by t.created_at desc, t.token_hash desc limit ${limit}`;
    return rows.map((row) => withTarget(inMs(row)));
  });
}

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
