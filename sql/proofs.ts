import type { Pool } from './db.js';
import { fromUuid, toUuid } from './ids.js';
import { asTenants } from './tenant-scope.js';
import type { Environment } from './tenants.js';

/** A proof as its tenant may read it; payload columns are null once erased. */
export interface StoredProof {
  proofId: string;
  leafIndex: number;
  lane: 1 | 2;
  effect: 'ADMIT' | 'DENY';
  environment: Environment;
  keyId: string;
  aep: Buffer | null;
  signature: Buffer | null;
  requestHash: Buffer;
  /** Epoch milliseconds. */
  acceptedAt: number;
  aepHash: Buffer;
  proofRecordHash: Buffer;
}

/** One of the tenant's proofs, or null: another tenant's proof is as absent as one that never was. */
export function readProof(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<StoredProof | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const [row] = await tx<
      {
        proof_id: string;
        leaf_index: string;
        lane: 1 | 2;
        effect: 'ADMIT' | 'DENY';
        environment: Environment;
        key_id: string;
        aep: Buffer | null;
        signature: Buffer | null;
        request_hash: Buffer;
        accepted_at: Date;
        aep_hash: Buffer;
        proof_record_hash: Buffer;
      }[]
    >`
      select p.proof_id::text, p.leaf_index, p.lane, p.effect, p.environment, p.key_id, p.aep, p.signature,
        i.request_hash, i.accepted_at, e.aep_hash, e.proof_record_hash
      from svc.proof p
      join svc.intake i on i.proof_id = p.proof_id and i.tenant_no = p.tenant_no
      join svc.log_entry e on e.leaf_index = p.leaf_index
      where p.proof_id = ${toUuid(proofId)}::uuid and p.tenant_no = ${tenantNo}`;
    if (row === undefined) return null;
    return {
      proofId: fromUuid(row.proof_id),
      leafIndex: Number(row.leaf_index),
      lane: row.lane,
      effect: row.effect,
      environment: row.environment,
      keyId: row.key_id,
      aep: row.aep,
      signature: row.signature,
      requestHash: row.request_hash,
      acceptedAt: row.accepted_at.getTime(),
      aepHash: row.aep_hash,
      proofRecordHash: row.proof_record_hash,
    };
  });
}
