import type { Db, Pool } from '../db/transaction.js';
import { fromUuid, toUuid } from '../db/columns.js';
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

/** The columns of `pinnedColumns`, as the driver returns them. */
export interface PinnedRow {
  proof_id: string;
  tenant_no: number;
  tenant_id: string;
  lane: 1 | 2;
  environment: Environment;
  request: Buffer;
  request_hash: Buffer;
  accepted_at: Date;
  salt: Buffer;
  policy_digest: Buffer;
  fixture_hash: Buffer | null;
  validity: StoredValidity;
}

/** The stored form: null when every validity is unlimited. */
export type StoredValidity = Validity | null;

const NO_END: Validity = { proof: null, certificate: null, passport: null, trust: null };

/** The validity that an admission pins, from `svc.tenant t`. */
export const pinnedValidity = (sql: Db) => sql`
  nullif(t.validity, '{"proof":null,"certificate":null,"passport":null,"trust":null}'::jsonb)`;

export const validityOf = (stored: StoredValidity): Validity => stored ?? NO_END;

/** The columns to select from `svc.intake i join svc.tenant t`. */
export const pinnedColumns = (sql: Db) => sql`
  i.proof_id::text, i.tenant_no, t.tenant_id, i.lane, i.environment, i.request, i.request_hash,
  i.accepted_at, i.salt, i.policy_digest, i.fixture_hash, i.validity`;

export function pinnedIntake(row: PinnedRow): PinnedIntake {
  return {
    proofId: fromUuid(row.proof_id),
    tenantNo: row.tenant_no,
    tenantId: row.tenant_id,
    lane: row.lane,
    environment: row.environment,
    request: row.request,
    requestHash: row.request_hash,
    acceptedAt: row.accepted_at.getTime(),
    salt: row.salt,
    policyDigest: row.policy_digest,
    fixtureHash: row.fixture_hash,
    validity: validityOf(row.validity),
  };
}

/** The pinned inputs of one of the tenant's admissions; null when unknown or erased. */
export function readPinnedIntake(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<PinnedIntake | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const [row] = await tx<PinnedRow[]>`
      select ${pinnedColumns(tx)} from svc.intake i join svc.tenant t using (tenant_no)
      where i.proof_id = ${toUuid(proofId)}::uuid and i.tenant_no = ${tenantNo}
        and num_nulls(i.request, i.request_hash, i.salt) = 0`;
    return row === undefined ? null : pinnedIntake(row);
  });
}
