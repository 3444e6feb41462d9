import type { Db } from '../db/transaction.js';
import { erasedAmong } from '../erasure/due.js';
import { entryColumns, entryOrEmpty, type EntryRow, LEAF_KINDS, PROOF } from './log.js';
import { unpackAep } from '../proofs/packed-aep.js';

export interface LeafEvidence {
  leafIndex: number;
  /** Empty when the columns do not form an entry. */
  entry: Uint8Array;
  kind: 'proof' | 'status' | 'key';
  /** The proof id of the row; null for a key entry. */
  filedUnder: string | null;
  proof: {
    proofId: string;
    request: Buffer | null;
    aep: Buffer | null;
    signature: Buffer | null;
    keyId: string | null;
    /** Columns that are published, listed or answered from, besides the log's own. */
    effect: string | null;
    environment: string | null;
    /** The tenant of both the proof and its intake row; null when they differ. */
    tenantId: string | null;
    lane: number | null;
    isOutcome: boolean | null;
    action: string | null;
    intentId: string | null;
    /** The payload is gone, and an erasure record exists. */
    isErased: boolean;
  } | null;
}

/** The leaves with indexes in [from, to), in order; missing leaves are absent. */
export async function readEvidence(sql: Db, from: number, to: number): Promise<LeafEvidence[]> {
  type ProofColumns = Omit<NonNullable<LeafEvidence['proof']>, 'proofId' | 'isErased'>;
  const rows = await sql<(EntryRow & ProofColumns & { bare: boolean })[]>`
    select ${entryColumns(sql)}, i.request, p.aep, p.signature, p.key_id as "keyId", p.effect,
      p.environment, t.tenant_id as "tenantId", case when i.lane = p.lane then p.lane end as lane,
      p.is_outcome as "isOutcome", p.action, p.intent_id as "intentId",
      p.proof_id is not null and num_nonnulls(i.request, i.request_hash, i.salt, p.aep, p.signature,
        p.action, p.intent_id) = 0 as bare
    from svc.log_entry e
    left join svc.proof p on e.kind = 1 and p.proof_id = e.proof_id
    left join svc.intake i on i.proof_id = p.proof_id
    left join svc.tenant t on t.tenant_no = p.tenant_no and t.tenant_no = i.tenant_no
    where e.leaf_index >= ${from} and e.leaf_index < ${to}
    order by e.leaf_index`;
  // Read after the rows: a concurrent erasure then has its record when its payload is gone.
  const bare = rows.flatMap((row) => (row.bare && row.proofId !== null ? [row.proofId] : []));
  const erased = await erasedAmong(sql, bare);
  return rows.map((row) => {
    const { leafIndex, kind, proofId, aep } = row;
    const proof =
      proofId === null || kind !== PROOF
        ? null
        : {
            ...row,
            proofId,
            aep: aep === null ? null : unpackAep(aep),
            isErased: erased.has(proofId),
          };
    const entry = entryOrEmpty(row);
    return { leafIndex, entry, kind: LEAF_KINDS[kind] ?? 'proof', filedUnder: proofId, proof };
  });
}
