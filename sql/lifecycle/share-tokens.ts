import { isProofOnly, type ArtifactKind, type Effect } from '#protocol/status';
import type { Db, Pool, Transaction } from '../db/transaction.js';
import { comparableTime, fromUuid, packageIdOf, packageUuid, toUuid } from '../db/columns.js';
import { asTenants } from '../db/tenant-scope.js';

/** The target of a token. */
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
      where package_id = ${packageUuid(target.packageId)}::uuid and tenant_no = ${tenantNo}`;
    return found === undefined ? 'unknown_target' : null;
  }
  const [proof] = await tx<{ effect: Effect; is_outcome: boolean }[]>`
    select effect, is_outcome from svc.proof
    where proof_id = ${toUuid(target.proofId)}::uuid and tenant_no = ${tenantNo}`;
  if (proof === undefined) return 'unknown_target';
  const { effect, is_outcome: isOutcome } = proof;
  return target.artifactKind !== 'proof' && isProofOnly({ effect, isOutcome })
    ? 'absent_artifact'
    : null;
}

/** Returns the creation time by the database clock; null when the expiry has passed. */
async function insertToken(
  tx: Transaction,
  tenantNo: number,
  { tokenHash, keyNo, target, expiresAt }: NewShareToken,
): Promise<number | null> {
  const [row] = await tx<{ created_at: Date }[]>`
    insert into svc.share_token
      (token_hash, tenant_no, key_no, artifact_kind, proof_id, package_id, created_at, expires_at)
    select ${Buffer.from(tokenHash)}, ${tenantNo}, ${keyNo}, ${target.artifactKind},
      ${'proofId' in target ? toUuid(target.proofId) : null}::uuid,
      ${'packageId' in target ? packageUuid(target.packageId) : null}::uuid, now.at, wanted.until
    from (select date_trunc('milliseconds', clock_timestamp()) as at) now,
      (select ${expiresAt === null ? null : comparableTime(expiresAt)}::timestamptz as until) wanted
    where wanted.until is null or wanted.until > now.at
    returning created_at`;
  return row?.created_at.getTime() ?? null;
}

export interface ShareToken {
  tokenHash: Buffer;
  target: ShareTarget;
  /** Epoch milliseconds, like the others. */
  createdAt: number;
  expiresAt: number | null;
  revokedAt: number | null;
}

/** A position in the list of tokens, newest first. */
export interface ShareTokenPlace {
  createdAt: number;
  tokenHash: Uint8Array;
}

interface ShareTokenRow {
  token_hash: Buffer;
  artifact_kind: ArtifactKind | 'package';
  proof_id: string | null;
  package_id: string | null;
  created_at: Date;
  expires_at: Date | null;
  revoked_at: Date | null;
}

const shareToken = (row: ShareTokenRow): ShareToken => ({
  tokenHash: row.token_hash,
  target:
    row.artifact_kind === 'package'
      ? { artifactKind: 'package', packageId: packageIdOf(row.package_id ?? '') }
      : { artifactKind: row.artifact_kind, proofId: fromUuid(row.proof_id ?? '') },
  createdAt: row.created_at.getTime(),
  expiresAt: row.expires_at?.getTime() ?? null,
  revokedAt: row.revoked_at?.getTime() ?? null,
});

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
            < (${new Date(after.createdAt)}::timestamptz, ${Buffer.from(after.tokenHash)}::bytea)`;
    const rows = await tx<ShareTokenRow[]>`
      select t.token_hash, t.artifact_kind, t.proof_id::text, t.package_id::text, t.created_at,
        t.expires_at, r.revoked_at
      from svc.share_token t left join svc.share_revocation r using (token_hash)
      where t.tenant_no = ${tenantNo} ${behind}
      order by t.created_at desc, t.token_hash desc limit ${limit}`;
    return rows.map(shareToken);
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
    const hash = Buffer.from(token.tokenHash);
    const [own] = await tx`
      select from svc.share_token where token_hash = ${hash} and tenant_no = ${tenantNo}`;
    if (own === undefined) return false;
    await tx`
      insert into svc.share_revocation (token_hash, key_no) values (${hash}, ${token.keyNo})
      on conflict (token_hash) do nothing`;
    return true;
  });
}
