import type { ArtifactKind } from '#protocol/status';
import type { Db, Transaction } from '../db/transaction.js';
import { mapDbErrors } from '../db/errors.js';
import { fromUuid, packageIdOf, packageUuid, toUuid } from '../db/columns.js';
import type { ShareTarget } from './share-tokens.js';

/** A token (by hex hash) was created, revoked or has expired, or a package was created. */
export type ShareChange = { changeNo: number } & ({ tokenHash: string } | { packageId: string });

/** Changes of tokens and packages after `changeNo`, in commit order and without gaps. */
export function shareChangesSince(
  sql: Db,
  changeNo: number,
  limit: number,
): Promise<ShareChange[]> {
  return mapDbErrors(async () => {
    const rows = await sql<
      { change_no: string; token_hash: Buffer | null; package_id: string | null }[]
    >`
      select change_no, token_hash, package_id::text from svc.grant_change
      where change_no > ${changeNo} order by change_no limit ${limit}`;
    return rows.map(({ change_no, token_hash, package_id }) => ({
      changeNo: Number(change_no),
      ...(token_hash === null
        ? { packageId: packageIdOf(package_id ?? '') }
        : { tokenHash: token_hash.toString('hex') }),
    }));
  });
}

/**
 * The targets of tokens by hex hash; null for a token that is revoked or has a recorded expiry. Reads
 * no clock: the verifier records expiries.
 */
export function sharesNow(
  sql: Db,
  tokenHashes: readonly string[],
): Promise<Map<string, ShareTarget | null>> {
  return mapDbErrors(async () => {
    const rows = await sql<
      {
        token_hash: Buffer;
        artifact_kind: ArtifactKind | 'package';
        proof_id: string | null;
        package_id: string | null;
        ended: boolean;
      }[]
    >`
      select t.token_hash, t.artifact_kind, t.proof_id::text, t.package_id::text,
        exists (select from svc.share_revocation r where r.token_hash = t.token_hash)
          or exists (select from svc.share_expiry e where e.token_hash = t.token_hash) as ended
      from unnest(${[...tokenHashes]}::text[]) as asked(hash)
      join svc.share_token t on t.token_hash = decode(asked.hash, 'hex')`;
    return new Map(
      rows.map(({ token_hash, artifact_kind, proof_id, package_id, ended }) => {
        const target: ShareTarget =
          artifact_kind === 'package'
            ? { artifactKind: artifact_kind, packageId: packageIdOf(package_id ?? '') }
            : { artifactKind: artifact_kind, proofId: fromUuid(proof_id ?? '') };
        return [token_hash.toString('hex'), ended ? null : target];
      }),
    );
  });
}

export interface PackageRow {
  packageId: string;
  /** In the package's order. */
  proofIds: string[];
  /** Hex; stored when the package was created. */
  membersHash: string;
}

/** Packages of any tenant, with their members. */
export function packageRows(sql: Db, packageIds: readonly string[]): Promise<PackageRow[]> {
  return mapDbErrors(async () => {
    const rows = await sql<{ package_id: string; members_hash: Buffer; proof_ids: string[] }[]>`
      select k.package_id::text, k.members_hash, m.proof_ids
      from svc.trust_package k
      cross join lateral (select coalesce(array_agg(proof_id::text order by position), '{}') as proof_ids
        from svc.package_member where package_id = k.package_id) m
      where k.package_id = any(${packageIds.map(packageUuid)}::uuid[])`;
    return rows.map((row) => ({
      packageId: packageIdOf(row.package_id),
      proofIds: row.proof_ids.map(fromUuid),
      membersHash: row.members_hash.toString('hex'),
    }));
  });
}

/** The ids of packages, of any tenant, that contain one of the proofs, in order. */
export function packagesWith(sql: Db, proofIds: readonly string[]): Promise<string[]> {
  return mapDbErrors(async () => {
    const rows = await sql<{ package_id: string }[]>`
      select distinct package_id from svc.package_member
      where proof_id = any(${proofIds.map(toUuid)}::uuid[]) order by package_id`;
    return rows.map((row) => packageIdOf(row.package_id));
  });
}

/**
 * Records expired tokens by the database clock and returns their number. Must not run concurrently: the
 * second scan would wait for the first and then find no rows.
 */
export function expireShares(tx: Transaction, limit: number): Promise<number> {
  return mapDbErrors(async () => {
    const over = await tx`
      with over as (
        delete from svc.share_due where token_hash in (
          select token_hash from svc.share_due where expires_at <= now()
          order by expires_at limit ${limit})
        returning token_hash)
      insert into svc.share_expiry (token_hash) select token_hash from over`;
    return over.count;
  });
}
