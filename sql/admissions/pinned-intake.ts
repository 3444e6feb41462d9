import type { Db, Pool } from '../db/transaction.js';
import { asTenants } from '../db/tenant-scope.js';
import type { Environment } from '../tenants/authenticate.js';

/** The validity of each artifact of an admission, in seconds from acceptance; null: unlimited. */
export interface Validity {
  proof: number | null;
  certificate: number | null;
  passport: number | null;
  trust: number | null;
}

/** An accepted admission with every input pinned: its decision is a pure function of this. */
export interface PinnedIntake {
  proofId: string;
  tenantNo: number;
  tenantId: string;
  lane: 1 | 2;
  environment: Environment;
  request: Buffer;
  requestHash: Buffer;
  /** Epoch milliseconds. */
  acceptedAt: number;
  salt: Buffer;
  policyDigest: Buffer;
  fixtureHash: Buffer | null;
  validity: Validity;
}

export const UNLIMITED: Validity = {
  proof: null,
  certificate: null,
  passport: null,
  trust: null,
};

/** The validity that an admission pins, from `svc.tenant t`; null when every validity is unlimited. */
export const pinnedValidity = (sql: Db) =>
  sql`nullif(t.validity, ${JSON.stringify(UNLIMITED)}::text::jsonb)`;

type SharedColumn = Exclude<keyof PinnedIntake, 'proofId' | 'request' | 'requestHash' | 'salt'>;
export type SharedRow = Omit<Pick<PinnedIntake, SharedColumn>, 'acceptedAt' | 'validity'> & {
  acceptedAt: Date;
  validity: Validity | null;
};

/** Selects a SharedRow from `svc.intake i join svc.tenant t`. */
export const sharedColumns = (sql: Db) => sql`
  i.tenant_no as "tenantNo", t.tenant_id as "tenantId", i.lane, i.environment,
  i.accepted_at as "acceptedAt", i.policy_digest as "policyDigest",
  i.fixture_hash as "fixtureHash", i.validity`;

export const sharedPins = ({ acceptedAt, validity, ...row }: SharedRow) => ({
  ...row,
  acceptedAt: acceptedAt.getTime(),
  validity: validity ?? UNLIMITED,
});

/** The pinned inputs of one of the tenant's admissions; null when unknown or erased. */
export function readPinnedIntake(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<PinnedIntake | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const [row] = await tx<(SharedRow & Omit<PinnedIntake, SharedColumn>)[]>`
      select ${sharedColumns(tx)}, i.proof_id as "proofId", i.request,
        i.request_hash as "requestHash", i.salt
      from svc.intake i join svc.tenant t using (tenant_no)
      where i.proof_id = ${proofId}::uuid and i.tenant_no = ${tenantNo}
        and num_nulls(i.request, i.request_hash, i.salt) = 0`;
    return row === undefined ? null : { ...row, ...sharedPins(row) };
  });
}
