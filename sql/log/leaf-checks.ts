import { requestTypeOf } from '#protocol/aep';
import { readEntry } from '#protocol/entries';
import type { Sha256 } from '#protocol/hash';
import { leafHash } from '#protocol/merkle';
import type { Aep } from '#protocol/schemas/aep';
import type { LogEntry } from '#protocol/schemas/log-entry';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import { parseTime } from '#protocol/time';
import type { Db } from '../db/transaction.js';
import { erasedAmong } from './verdicts.js';
import { unpackAep } from '../proofs/packed-aep.js';
import { entryColumns, entryOrEmpty, type EntryRow, LEAF_KINDS, PROOF } from './log.js';

export interface LeafEvidence {
  leafIndex: number;
  /** Empty when the columns do not form an entry. */
  entry: Uint8Array;
  kind: 'proof' | 'status' | 'key';
  /** The proof id in the row; null for a key entry. */
  filedUnder: string | null;
  proof: {
    proofId: string;
    request: Buffer | null;
    aep: Buffer | null;
    signature: Buffer | null;
    keyId: string | null;
    /** From here on, columns outside the log that are published, listed or returned. */
    effect: string | null;
    environment: string | null;
    /** The tenant of both the proof and its intake row; null when they differ. */
    tenantId: string | null;
    lane: number | null;
    isOutcome: boolean | null;
    action: string | null;
    intentId: string | null;
    /** Whether the payload is gone and an erasure record exists. */
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
  // Read after the rows: if a concurrent erasure removed a payload, its record is then visible.
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

/** The columns of a proof that repeat its AEP. */
export interface AepColumns {
  effect: string | null;
  environment: string | null;
  keyId: string | null;
  tenantId: string | null;
  lane: number | null;
  isOutcome: boolean | null;
  action: string | null;
  intentId: string | null;
}

/**
 * The names of the columns that differ from the AEP. They matter because the publisher reads only
 * columns, and because columns decide who may read a proof and which lists contain it.
 */
export function columnsUnlikeAep(columns: AepColumns, { subject, ...aep }: Aep): string[] {
  return failing({
    effect: columns.effect === aep.decision.effect,
    environment: columns.environment === aep.environment,
    key_id: columns.keyId === aep.key_id,
    tenant_no: columns.tenantId === aep.tenant_id,
    lane: columns.lane === (requestTypeOf(subject) === 'execute' ? 1 : 2),
    is_outcome: columns.isOutcome === (subject.kind === 'outcome'),
    action: columns.action === ('action' in subject ? subject.action : null),
    intent_id: columns.intentId === ('intent_id' in subject ? subject.intent_id : null),
  });
}

/** The names of the conditions that do not hold. */
export function failing(conditions: Record<string, boolean>): string[] {
  return Object.entries(conditions).flatMap(([name, holds]) => (holds ? [] : [name]));
}

/** The expiries of a proof's artifacts from its signed AEP, in epoch milliseconds. */
export function expiriesOf(aep: Aep): { kind: ArtifactKind; expiresAt: number }[] {
  const ends: Partial<Record<ArtifactKind, string | null>> = aep.valid_until;
  return ARTIFACT_KINDS.flatMap((kind) => {
    const end = ends[kind];
    return end === undefined || end === null ? [] : [{ kind, expiresAt: parseTime(end) }];
  });
}

/**
 * The status or key entry of a row; null unless it matches the row's kind and proof id, by which
 * queries find the row.
 */
export function filedEntry(leaf: {
  entry: Uint8Array;
  kind: 'proof' | 'status' | 'key';
  filedUnder: string | null;
}): Exclude<LogEntry, { type: 'proof' }> | null {
  const entry = readEntry(leaf.entry);
  if (entry === null || entry.type === 'proof' || entry.type !== leaf.kind) return null;
  return (entry.type === 'status' ? entry.proof_id : null) === leaf.filedUnder ? entry : null;
}

/** The digest of an empty key history. */
export const NO_KEYS_DIGEST: Buffer = Buffer.alloc(32);

/** Extends the hash chain over index and leaf hash of every key entry by one entry. */
export function nextKeysDigest(
  sha256: Sha256,
  digest: Uint8Array,
  leafIndex: number,
  body: Uint8Array,
): Buffer {
  const index = Buffer.alloc(8);
  index.writeBigUInt64BE(BigInt(leafIndex));
  return Buffer.from(sha256(Buffer.concat([digest, index, leafHash(sha256, body)])));
}
