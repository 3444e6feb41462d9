import type { Db } from '../db/transaction.js';
import { fromUuid } from '../db/columns.js';
import { entryBytesOf, LEAF_KINDS, type EntryRow } from '../log/log.js';
import { unpackAep } from '../proofs/packed-aep.js';
import { validityOf, type StoredValidity, type Validity } from '../admissions/pinned-intake.js';

/** A leaf with all of its rows: stored bytes, and columns that repeat them. */
export interface StoredLeaf {
  leafIndex: number;
  /** Empty when the columns do not form an entry. */
  entry: Uint8Array;
  kind: 'proof' | 'status' | 'key';
  /** The proof id of the row; null for a key entry. */
  filedUnder: string | null;
  /** Epoch milliseconds. */
  at: number;
  /** Null for other kinds of leaves, and when the row is missing. */
  proof: {
    leafIndex: number;
    aep: Buffer | null;
    signature: Buffer | null;
    keyId: string;
    effect: 'ADMIT' | 'DENY';
    environment: 'sandbox' | 'live';
    tenantNo: number;
    tenantId: string | null;
    lane: number;
    isOutcome: boolean;
    action: string | null;
    intentId: string | null;
  } | null;
  /** An erasure record exists. */
  isErased: boolean;
  /** The verifier has not recorded the erasure yet. */
  isErasureDue: boolean;
  intake: {
    request: Buffer | null;
    requestHash: Buffer | null;
    /** Epoch milliseconds. */
    acceptedAt: number;
    salt: Buffer | null;
    policyDigest: Buffer;
    fixtureHash: Buffer | null;
    environment: string;
    tenantNo: number;
    lane: number;
    validity: Validity;
  } | null;
}

interface Row extends EntryRow {
  proof_leaf: number | null;
  aep: Buffer | null;
  signature: Buffer | null;
  key_id: string;
  effect: 'ADMIT' | 'DENY';
  environment: 'sandbox' | 'live';
  tenant_no: number;
  tenant_id: string | null;
  lane: number;
  is_outcome: boolean;
  action: string | null;
  intent_id: string | null;
  request: Buffer | null;
  request_hash: Buffer | null;
  accepted: boolean;
  erased: boolean;
  due: boolean;
  accepted_at: Date;
  salt: Buffer | null;
  policy_digest: Buffer;
  fixture_hash: Buffer | null;
  intake_environment: string;
  intake_tenant: number;
  intake_lane: number;
  validity: StoredValidity;
}

/** The leaves with indexes in [from, to), in order; missing leaves are absent. */
export async function readLeaves(sql: Db, from: number, to: number): Promise<StoredLeaf[]> {
  const rows = await sql<Row[]>`
    select e.leaf_index, e.kind, e.proof_id::text, e.at, e.aep_hash, e.proof_record_hash, e.body,
      p.leaf_index as proof_leaf, p.aep, p.signature, p.key_id, p.effect, p.environment,
      p.tenant_no, t.tenant_id, p.lane, p.is_outcome, p.action, p.intent_id,
      i.request, i.request_hash, i.accepted_at, i.salt, i.policy_digest, i.fixture_hash,
      i.environment as intake_environment, i.tenant_no as intake_tenant, i.lane as intake_lane,
      i.validity, i.proof_id is not null as accepted, x.proof_id is not null as erased,
      d.leaf_index is not null as due
    from svc.log_entry e
    left join svc.proof p on e.kind = 1 and p.proof_id = e.proof_id
    left join svc.intake i on e.kind = 1 and i.proof_id = e.proof_id
    left join svc.tenant t on t.tenant_no = p.tenant_no
    left join svc.erasure x on e.kind = 1 and x.proof_id = e.proof_id
    left join svc.erasure_due d on d.leaf_index = e.leaf_index
    where e.leaf_index >= ${from} and e.leaf_index < ${to}
    order by e.leaf_index`;
  return rows.map(storedLeaf);
}

function storedLeaf(row: Row): StoredLeaf {
  return {
    leafIndex: Number(row.leaf_index),
    entry: entryOrEmpty(row),
    kind: LEAF_KINDS[row.kind] ?? 'proof',
    filedUnder: row.proof_id === null ? null : fromUuid(row.proof_id),
    at: row.at.getTime(),
    isErased: row.erased,
    isErasureDue: row.due,
    proof:
      row.proof_leaf === null
        ? null
        : {
            leafIndex: Number(row.proof_leaf),
            aep: row.aep === null ? null : unpackAep(row.aep),
            signature: row.signature,
            keyId: row.key_id,
            effect: row.effect,
            environment: row.environment,
            tenantNo: row.tenant_no,
            tenantId: row.tenant_id,
            lane: row.lane,
            isOutcome: row.is_outcome,
            action: row.action,
            intentId: row.intent_id,
          },
    intake: !row.accepted
      ? null
      : {
          request: row.request,
          requestHash: row.request_hash,
          acceptedAt: row.accepted_at.getTime(),
          salt: row.salt,
          policyDigest: row.policy_digest,
          fixtureHash: row.fixture_hash,
          environment: row.intake_environment,
          tenantNo: row.intake_tenant,
          lane: row.intake_lane,
          validity: validityOf(row.validity),
        },
  };
}

/** Returns no bytes for a damaged row, so that the other rows can still be read. */
function entryOrEmpty(row: EntryRow): Uint8Array {
  try {
    return entryBytesOf(row);
  } catch {
    return new Uint8Array();
  }
}
