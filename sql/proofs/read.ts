import type { Pool } from '../db/transaction.js';
import { fromUuid, toUuid } from '../db/columns.js';
import { unpackAep } from './packed-aep.js';
import { asTenants } from '../db/tenant-scope.js';
import type { Environment } from '../tenants/authenticate.js';

/** A proof for its tenant; payload columns are null after an erasure. */
export interface StoredProof {
  proofId: string;
  /** The tenant in the proof's row. */
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
    const [row] = await tx<
      {
        proof_id: string;
        tenant_id: string;
        leaf_index: string;
        lane: 1 | 2;
        effect: 'ADMIT' | 'DENY';
        is_outcome: boolean;
        environment: Environment;
        key_id: string;
        aep: Buffer | null;
        signature: Buffer | null;
        request_hash: Buffer | null;
        is_erased: boolean;
        accepted_at: Date;
        aep_hash: Buffer;
        proof_record_hash: Buffer;
        is_logged: boolean;
      }[]
    >`
      select p.proof_id::text, t.tenant_id, p.leaf_index, p.lane, p.effect, p.is_outcome, p.environment, p.key_id, p.aep, p.signature,
        i.request_hash, i.accepted_at,
        case when p.aep is null then (select true from svc.erasure x where x.proof_id = p.proof_id) end
          is not null as is_erased,
        coalesce(e.aep_hash, ${NO_HASH}) as aep_hash,
        coalesce(e.proof_record_hash, ${NO_HASH}) as proof_record_hash,
        e.kind = 1 and e.proof_id = p.proof_id and e.at = i.accepted_at as is_logged
      from svc.proof p
      join svc.intake i on i.proof_id = p.proof_id and i.tenant_no = p.tenant_no
      join svc.tenant t on t.tenant_no = p.tenant_no
      join svc.log_entry e on e.leaf_index = p.leaf_index
      where p.proof_id = ${toUuid(proofId)}::uuid and p.tenant_no = ${tenantNo}`;
    if (row === undefined) return null;
    return {
      proofId: fromUuid(row.proof_id),
      tenantId: row.tenant_id,
      leafIndex: Number(row.leaf_index),
      lane: row.lane,
      effect: row.effect,
      isOutcome: row.is_outcome,
      environment: row.environment,
      keyId: row.key_id,
      aep: row.aep === null ? null : unpackAep(row.aep),
      signature: row.signature,
      requestHash: row.request_hash,
      isErased: row.is_erased,
      acceptedAt: row.accepted_at.getTime(),
      aepHash: row.aep_hash,
      proofRecordHash: row.proof_record_hash,
      isLogged: row.is_logged,
    };
  });
}
