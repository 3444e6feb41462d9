import {
  type Db,
  type Fragment,
  type Pool,
  type Transaction,
  asTenants,
} from '../db/transaction.js';
import { firstRow, hexOf, inMs, packageIdOf } from '../db/columns.js';
import { pageAfter, type TenantList } from '../db/paging.js';

export interface NewPackage {
  packageId: string;
  keyNo: number;
  /** Distinct, in display order. */
  proofIds: readonly string[];
  /** SHA-256 over the proof ids in order: the deduplication key. */
  membersHash: Uint8Array;
}

export interface TrustPackage {
  packageId: string;
  proofIds: string[];
  /** Epoch milliseconds. */
  createdAt: number;
}

export type MemberFault = 'unknown' | 'denied' | 'outcome' | 'erased';

export type CreatePackageOutcome =
  | { outcome: 'created' | 'repeat'; package: TrustPackage }
  /** The faults by position in the request. */
  | { outcome: 'unfit'; faults: Map<number, MemberFault> };

/**
 * Creates a package of the tenant's own admissions of actions. The same proofs in the same order are the
 * same package.
 */
export function createPackage(
  sql: Pool,
  tenantNo: number,
  wanted: NewPackage,
): Promise<CreatePackageOutcome> {
  return asTenants(sql, [tenantNo], async (tx) => {
    // An existing package stays valid even if a member would be rejected now.
    const before = await packageOf(tx, tenantNo, wanted);
    if (before !== null) return { outcome: 'repeat', package: before };
    const faults = await faultsOf(tx, tenantNo, wanted.proofIds);
    if (faults.size > 0) return { outcome: 'unfit', faults };
    const isNew = await insertPackage(tx, tenantNo, wanted);
    const stored = await packageOf(tx, tenantNo, wanted);
    if (stored === null) throw new Error('a package that was just inserted was not found');
    return { outcome: isNew ? 'created' : 'repeat', package: stored };
  });
}

const packageOf = (tx: Db, tenantNo: number, { membersHash }: NewPackage) =>
  firstRow(packagesOf(tx, tenantNo, tx`and members_hash = ${membersHash}`));

async function faultsOf(
  tx: Db,
  tenantNo: number,
  proofIds: readonly string[],
): Promise<Map<number, MemberFault>> {
  const rows = await tx<{ n: number; fault: MemberFault }[]>`
    select n, case when e.proof_id is null then 'unknown' when e.effect <> 'ADMIT' then 'denied'
      when e.signature is null then 'erased' else 'outcome' end as fault
    from unnest(${[...proofIds]}::uuid[]) with ordinality as asked(proof_id, n)
    left join svc.log_entry e on e.proof_id = asked.proof_id and e.tenant_no = ${tenantNo}
    where e.proof_id is null or e.effect <> 'ADMIT' or e.signature is null or e.is_outcome
    order by n`;
  return new Map(rows.map(({ n, fault }) => [n - 1, fault]));
}

/** Runs two statements, because a row-level security check on members must see the package row. */
async function insertPackage(
  tx: Transaction,
  tenantNo: number,
  { packageId, keyNo, proofIds, membersHash }: NewPackage,
): Promise<boolean> {
  const inserted = await tx`
    insert into svc.trust_package (package_id, tenant_no, key_no, members_hash)
    values (${hexOf(packageId)}::uuid, ${tenantNo}, ${keyNo}, ${membersHash})
    on conflict (tenant_no, members_hash) do nothing`;
  if (inserted.count === 0) return false;
  await tx`
    insert into svc.package_member (package_id, position, proof_id)
    select ${hexOf(packageId)}::uuid, n - 1, proof_id
    from unnest(${[...proofIds]}::uuid[]) with ordinality as member(proof_id, n)`;
  return true;
}

/** The tenant's packages; `matching` continues the where clause. */
async function packagesOf(tx: Db, tenantNo: number, matching: Fragment): Promise<TrustPackage[]> {
  const rows = await tx<(Omit<TrustPackage, 'createdAt'> & { createdAt: Date })[]>`
    select k.package_id as "packageId", k.created_at as "createdAt",
      (select array_agg(proof_id order by position) from svc.package_member
        where package_id = k.package_id) as "proofIds"
    from svc.trust_package k
    where k.tenant_no = ${tenantNo} ${matching}`;
  return rows.map((row) => ({ ...inMs(row), packageId: packageIdOf(row.packageId) }));
}

export function readPackage(
  sql: Pool,
  tenantNo: number,
  packageId: string,
): Promise<TrustPackage | null> {
  return asTenants(sql, [tenantNo], (tx) =>
    firstRow(packagesOf(tx, tenantNo, tx`and package_id = ${hexOf(packageId)}::uuid`)),
  );
}

/** The tenant's packages after `after`, newest first. */
export const listPackages: TenantList<TrustPackage> = (sql, tenantNo, limit, after) =>
  asTenants(sql, [tenantNo], (tx) =>
    packagesOf(tx, tenantNo, pageAfter(tx, ['k.created_at', 'k.package_id'], limit, after, hexOf)),
  );
