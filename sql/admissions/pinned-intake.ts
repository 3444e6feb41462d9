import { UNLIMITED, type PinnedIntake, type Validity } from '../proofs/rebuild-aep.js';
import { asTenants, type Db, type Pool } from '../db/transaction.js';

type SharedColumn = Exclude<keyof PinnedIntake, 'proofId' | 'request' | 'requestHash' | 'seed'>;
export type SharedRow = Omit<Pick<PinnedIntake, SharedColumn>, 'acceptedAt' | 'validity'> & {
  acceptedAt: Date;
  validity: Validity | null;
};

/** Columns of a SharedRow, from `svc.intake i join svc.tenant t`. */
export const sharedColumns = (sql: Db) => sql`
  i.tenant_no as "tenantNo", t.tenant_id as "tenantId", i.lane, i.environment,
  i.accepted_at as "acceptedAt", i.bound, i.policy_digest as "policyDigest",
  i.fixture_hash as "fixtureHash", i.validity, i.approval`;

export const sharedPins = ({ acceptedAt, validity, ...row }: SharedRow) => ({
  ...row,
  acceptedAt: acceptedAt.getTime(),
  validity: validity ?? UNLIMITED,
});

/** The pinned inputs of one of the tenant's admissions; null when the admission is unknown or erased. */
export function readPinnedIntake(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<PinnedIntake | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const [row] = await tx<(SharedRow & Omit<PinnedIntake, SharedColumn>)[]>`
      select ${sharedColumns(tx)}, i.proof_id as "proofId", i.request,
        i.request_hash as "requestHash", i.seed
      from svc.intake i join svc.tenant t using (tenant_no)
      where i.proof_id = ${proofId}::uuid and i.tenant_no = ${tenantNo}
        and num_nulls(i.request, i.request_hash, i.seed) = 0`;
    return row === undefined ? null : { ...row, ...sharedPins(row) };
  });
}
