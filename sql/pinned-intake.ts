import type { PinnedIntake } from './append.js';
import type { Pool } from './db.js';
import { toUuid } from './ids.js';
import { asTenants } from './tenant-scope.js';

/** What one of the tenant's admissions was decided from, or null when the tenant has none of that id. */
export function readPinnedIntake(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<PinnedIntake | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const [row] = await tx<
      {
        tenant_id: string;
        lane: PinnedIntake['lane'];
        environment: PinnedIntake['environment'];
        request: Buffer;
        request_hash: Buffer;
        accepted_at: Date;
        salt: Buffer;
        policy_digest: Buffer;
        fixture_hash: Buffer | null;
        validity: PinnedIntake['validity'];
      }[]
    >`
      select t.tenant_id, i.lane, i.environment, i.request, i.request_hash, i.accepted_at, i.salt,
        i.policy_digest, i.fixture_hash, i.validity
      from svc.intake i join svc.tenant t using (tenant_no)
      where i.proof_id = ${toUuid(proofId)}::uuid and i.tenant_no = ${tenantNo}`;
    if (row === undefined) return null;
    return {
      proofId,
      tenantNo,
      tenantId: row.tenant_id,
      lane: row.lane,
      environment: row.environment,
      request: row.request,
      requestHash: row.request_hash,
      acceptedAt: row.accepted_at.getTime(),
      salt: row.salt,
      policyDigest: row.policy_digest,
      fixtureHash: row.fixture_hash,
      validity: row.validity,
    };
  });
}
