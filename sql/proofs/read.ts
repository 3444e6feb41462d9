import type { Pool } from '../db/transaction.js';
import { inMs } from '../db/columns.js';
import { unpackAep } from './packed-aep.js';
import { asTenants } from '../db/tenant-scope.js';
import type { Environment } from '../tenants/authenticate.js';

/** A proof for its tenant; payload columns are null after an erasure. */
export interface StoredProof {
  proofId: string;
  tenantId: string;
  leafIndex: number;
  lane: 1 | 2;
  effect: 'ADMIT' | 'DENY';
  isOutcome: boolean;
  environment: Environment;
  keyId: string;
  aep: Buffer | null;
  signature: Buffer | null;
  /** Null after an erasure, like the two fields before. */
  requestHash: Buffer | null;
  /** An erasure record exists; without one, missing payload is lost. */
  isErased: boolean;
  /** Epoch milliseconds. */
  acceptedAt: number;
  aepHash: Buffer;
  proofRecordHash: Buffer;
  /** The row at its leaf is the entry of this proof, with the acceptance time. */
  isLogged: boolean;
}

/** The hash of a leaf that is not a proof: no bytes hash to it. */
const NO_HASH = Buffer.alloc(32);

/** One of the tenant's proofs; null when unknown or another tenant's. */
export function readProof(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<StoredProof | null> {
  return asTenants(sql, [tenantNo], async (tx) => {
    const [row] = await tx<(Omit<StoredProof, 'acceptedAt'> & { acceptedAt: Date })[]>`
      select p.proof_id as "proofId", t.tenant_id as "tenantId", p.leaf_index as "leafIndex", p.lane,
        p.effect, p.is_outcome as "isOutcome", p.environment, p.key_id as "keyId", p.aep, p.signature,
        i.request_hash as "requestHash", i.accepted_at as "acceptedAt",
        case when p.aep is null then (select true from svc.erasure x where x.proof_id = p.proof_id) end
          is not null as "isErased",
        coalesce(e.aep_hash, ${NO_HASH}) as "aepHash",
        coalesce(e.proof_record_hash, ${NO_HASH}) as "proofRecordHash",
        e.kind = 1 and e.proof_id = p.proof_id and e.at = i.accepted_at as "isLogged"
      from svc.proof p
      join svc.intake i on i.proof_id = p.proof_id and i.tenant_no = p.tenant_no
      join svc.tenant t on t.tenant_no = p.tenant_no
      join svc.log_entry e on e.leaf_index = p.leaf_index
      where p.proof_id = ${proofId}::uuid and p.tenant_no = ${tenantNo}`;
    if (row === undefined) return null;
    return { ...inMs(row), aep: row.aep === null ? null : unpackAep(row.aep) };
  });
}
