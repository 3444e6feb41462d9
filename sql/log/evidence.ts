import { proofEntryText } from '#protocol/entries';
import { formatTime } from '#protocol/time';
import type { Db } from '../db/transaction.js';
import { erasedAmong } from '../erasure/due.js';
import { mapDbErrors } from '../db/errors.js';
import { LEAF_KINDS, PROOF } from './log.js';
import { unpackAep } from '../proofs/packed-aep.js';

/** The stored evidence of one leaf, as the verifier reads it. */
export interface LeafEvidence {
  leafIndex: number;
  /** Empty when the columns do not form an entry. */
  entry: Uint8Array;
  kind: 'proof' | 'status' | 'key';
  /** The proof id of the row; null for a key entry. */
  filedUnder: string | null;
  /** Null for leaves that are not proofs. */
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

/** The log's columns of a leaf, in the form that its entry has. */
interface LeafRow {
  leaf_index: number;
  kind: number;
  /** Hex, like the hashes. */
  proof_id: string | null;
  /** Epoch milliseconds. */
  at: number;
  aep_hash: string | null;
  proof_record_hash: string | null;
  body: Buffer | null;
}

/** Returns no bytes for a damaged row, so that the other rows can still be read. */
function entryOrEmpty(row: LeafRow): Uint8Array {
  if (row.kind !== PROOF) return row.body ?? new Uint8Array();
  try {
    const text = proofEntryText({
      proof_id: row.proof_id ?? '',
      aep_hash: row.aep_hash ?? '',
      proof_record_hash: row.proof_record_hash ?? '',
      time: formatTime(row.at),
    });
    return Buffer.from(text);
  } catch {
    return new Uint8Array();
  }
}

/** The leaves with indexes in [from, to), in order; missing leaves are absent. */
export function readEvidence(sql: Db, from: number, to: number): Promise<LeafEvidence[]> {
  return mapDbErrors(async () => {
    const rows = await sql<
      (LeafRow & {
        request: Buffer | null;
        aep: Buffer | null;
        signature: Buffer | null;
        key_id: string | null;
        effect: string | null;
        environment: string | null;
        tenant_id: string | null;
        lane: number | null;
        is_outcome: boolean | null;
        action: string | null;
        intent_id: string | null;
        bare: boolean;
      })[]
    >`
      select e.leaf_index, e.kind, encode(uuid_send(e.proof_id), 'hex') as proof_id,
        round(date_part('epoch', e.at) * 1000) as at,
        encode(e.aep_hash, 'hex') as aep_hash,
        encode(e.proof_record_hash, 'hex') as proof_record_hash, e.body,
        i.request, p.aep, p.signature, p.key_id, p.effect, p.environment, t.tenant_id,
        case when i.lane = p.lane then p.lane end as lane, p.is_outcome, p.action, p.intent_id,
        p.proof_id is not null and num_nonnulls(i.request, i.request_hash, i.salt, p.aep, p.signature,
          p.action, p.intent_id) = 0 as bare
      from svc.log_entry e
      left join svc.proof p on e.kind = 1 and p.proof_id = e.proof_id
      left join svc.intake i on i.proof_id = p.proof_id
      left join svc.tenant t on t.tenant_no = p.tenant_no and t.tenant_no = i.tenant_no
      where e.leaf_index >= ${from} and e.leaf_index < ${to}
      order by e.leaf_index`;
    // Read after the rows: a concurrent erasure then has its record when its payload is gone.
    const bare = rows.flatMap((row) => (row.bare && row.proof_id !== null ? [row.proof_id] : []));
    const erased = await erasedAmong(sql, bare);
    return rows.map((row) => {
      const { proof_id: proofId, request, signature, effect, environment, lane, action } = row;
      const aep = row.aep === null ? null : unpackAep(row.aep);
      const leaf = {
        leafIndex: row.leaf_index,
        entry: entryOrEmpty(row),
        kind: LEAF_KINDS[row.kind] ?? 'proof',
        filedUnder: proofId,
      };
      if (proofId === null || row.kind !== PROOF) return { ...leaf, proof: null };
      const columns = {
        keyId: row.key_id,
        effect,
        environment,
        tenantId: row.tenant_id,
        lane,
        isOutcome: row.is_outcome,
        action,
        intentId: row.intent_id,
        isErased: erased.has(proofId),
      };
      return { ...leaf, proof: { proofId, request, aep, signature, ...columns } };
    });
  });
}
