import { parentOf, requestTypeOf } from '#protocol/aep';
import type { RecordedApproval } from '#protocol/approvals';
import { readEntry } from '#protocol/entries';
import { type Aep, isReport } from '#protocol/schemas/aep';
import type { LogEntry } from '#protocol/schemas/log-entry';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import { parseTime } from '#protocol/time';
import type { Db } from '../db/transaction.js';
import { erasedAmong } from './verdicts.js';
import { otherAepColumns, rebuildAep, type AepRow, type BuiltAep } from '../proofs/rebuild-aep.js';
import { readApprovals } from '../admissions/references.js';
import {
  entryColumns,
  entryOrEmpty,
  type EntryRow,
  LEAF_KINDS,
  type LeafKind,
  PROOF,
} from './log.js';

export interface LeafEvidence {
  leafIndex: number;
  /** The bytes of the entry; empty when the columns form no entry. */
  entry: Uint8Array;
  kind: LeafKind;
  /** The proof id in the row; null for an entry about no single proof. */
  filedUnder: string | null;
  proof: ({ proofId: string } & ProofRow) | null;
}

export interface ProofRow extends SubjectColumns {
  keyId: string;
  request: Buffer | null;
  seed: Buffer | null;
  signature: Buffer | null;
  /** Null after an erasure, and when the rows do not form an AEP. */
  rebuilt: BuiltAep | null;
  /** The approval of a second decision; null otherwise. */
  approval: RecordedApproval | null;
  /** Whether the payload is gone and an erasure record exists. */
  isErased: boolean;
}

export const leafOf = (row: EntryRow): Omit<LeafEvidence, 'proof'> => ({
  leafIndex: row.leafIndex,
  entry: entryOrEmpty(row),
  kind: LEAF_KINDS[row.kind] ?? 'proof',
  filedUnder: row.proofId,
});

/** The leaves with indexes in [from, to), in order; missing leaves are absent. */
export async function readEvidence(sql: Db, from: number, to: number): Promise<LeafEvidence[]> {
  const rows = await sql<(EntryRow & AepRow & SubjectColumns & { isBare: boolean })[]>`
    select ${otherAepColumns(sql)}, ${entryColumns(sql)}, case when i.lane = e.lane then e.lane end as lane,
      e.action, e.intent_id as "intentId",
      e.parent, num_nonnulls(i.request, i.request_hash, i.seed, i.approval, e.signature, e.reasons, e.budgets,
        e.action, e.intent_id, e.parent) = 0 as "isBare"
    from svc.log_entry e
    left join svc.intake i on i.proof_id = e.proof_id
    left join svc.tenant t on t.tenant_no = e.tenant_no and t.tenant_no = i.tenant_no
    where e.leaf_index >= ${from} and e.leaf_index < ${to}
    order by e.leaf_index`;
  const isProof = ({ kind }: EntryRow): boolean => kind === PROOF;
  // Reads erasure records after the rows: if a concurrent erasure removed a payload, its record is then visible.
  const bare = rows.flatMap((row) => (isProof(row) && row.isBare ? [row.proofId] : []));
  const erased = await erasedAmong(sql, bare);
  const approvals = await readApprovals(sql, rows);
  return rows.map((row) => ({
    ...leafOf(row),
    proof: isProof(row)
      ? {
          ...row,
          rebuilt: rebuildAep(row),
          approval: approvals.get(row.proofId) ?? null,
          isErased: erased.has(row.proofId),
        }
      : null,
  }));
}

/** The columns of a proof that repeat the subject of its AEP; null where the intake row disagrees. */
export interface SubjectColumns {
  lane: number | null;
  isOutcome: boolean;
  action: string | null;
  intentId: string | null;
  parent: string | null;
}

/**
 * The names of the columns that differ from the AEP. Lists, permissions and the publisher read the
 * columns. The AEP is rebuilt from other columns, whose alteration changes its hash.
 */
export function columnsUnlikeAep(columns: SubjectColumns, { subject }: Aep): string[] {
  const holds = {
    lane: columns.lane === (requestTypeOf(subject) === 'execute' ? 1 : 2),
    is_outcome: columns.isOutcome === isReport(subject),
    action: columns.action === ('action' in subject ? subject.action : null),
    intent_id: columns.intentId === ('intent_id' in subject ? subject.intent_id : null),
    parent: columns.parent === parentOf(subject),
  };
  return Object.entries(holds).flatMap(([name, isSame]) => (isSame ? [] : [name]));
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
 * The entry of a row other than a proof; null unless it matches the row's kind and proof id, by which queries find the
 * row.
 */
export function filedEntry(
  leaf: Pick<LeafEvidence, 'entry' | 'kind' | 'filedUnder'>,
): Exclude<LogEntry, { type: 'proof' }> | null {
  const entry = readEntry(leaf.entry);
  if (entry === null || entry.type === 'proof' || entry.type !== leaf.kind) return null;
  return (entry.type === 'status' ? entry.proof_id : null) === leaf.filedUnder ? entry : null;
}
