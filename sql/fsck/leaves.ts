import type { Db } from '../db/transaction.js';
import { entryColumns, entryOrEmpty, LEAF_KINDS, type EntryRow } from '../log/log.js';
import { unpackAep } from '../proofs/packed-aep.js';
import { UNLIMITED, type Validity } from '../admissions/pinned-intake.js';

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

interface Row extends EntryRow, Omit<NonNullable<StoredLeaf['proof']>, 'leafIndex'> {
  proofLeaf: number | null;
  isErased: boolean;
  isErasureDue: boolean;
  request: Buffer | null;
  requestHash: Buffer | null;
  acceptedAt: Date | null;
  salt: Buffer | null;
  policyDigest: Buffer;
  fixtureHash: Buffer | null;
  intakeEnvironment: string;
  intakeTenant: number;
  intakeLane: number;
  validity: Validity | null;
}

/** The leaves with indexes in [from, to), in order; missing leaves are absent. */
export async function readLeaves(sql: Db, from: number, to: number): Promise<StoredLeaf[]> {
  const rows = await sql<Row[]>`
    select ${entryColumns(sql)},
      p.leaf_index as "proofLeaf", p.aep, p.signature, p.key_id as "keyId", p.effect, p.environment,
      p.tenant_no as "tenantNo", t.tenant_id as "tenantId", p.lane, p.is_outcome as "isOutcome",
      p.action, p.intent_id as "intentId", i.request, i.request_hash as "requestHash",
      i.accepted_at as "acceptedAt", i.salt, i.policy_digest as "policyDigest",
      i.fixture_hash as "fixtureHash", i.environment as "intakeEnvironment",
      i.tenant_no as "intakeTenant", i.lane as "intakeLane", i.validity,
      x.proof_id is not null as "isErased", d.leaf_index is not null as "isErasureDue"
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
  const { leafIndex, proofLeaf, isErased, isErasureDue, acceptedAt } = row;
  return {
    leafIndex,
    entry: entryOrEmpty(row),
    kind: LEAF_KINDS[row.kind] ?? 'proof',
    filedUnder: row.proofId,
    at: row.at.getTime(),
    isErased,
    isErasureDue,
    proof:
      proofLeaf === null
        ? null
        : { ...row, leafIndex: proofLeaf, aep: row.aep === null ? null : unpackAep(row.aep) },
    intake:
      acceptedAt === null
        ? null
        : {
            ...row,
            acceptedAt: acceptedAt.getTime(),
            environment: row.intakeEnvironment,
            tenantNo: row.intakeTenant,
            lane: row.intakeLane,
            validity: row.validity ?? UNLIMITED,
          },
  };
}
