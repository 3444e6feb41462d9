import type { ArtifactKind } from '#protocol/status';
import type { Check } from '#protocol/schemas/verdict';
import { parseTime } from '#protocol/time';
import type { Db } from './db.js';
import { asking } from './errors.js';
import { treeSize } from './log.js';
import { statusesOf } from './status-entries.js';

/** One verdict that covers the proof, as the verifier wrote it. */
export interface VerdictInHistory {
  verdictId: number;
  /** One row for a whole range of leaves, which all passed unless a row of their own says otherwise. */
  frontier: boolean;
  /** The size of the log that the verifier saw. */
  treeSize: number;
  outcome: 'pass' | 'fail';
  expired: ArtifactKind[];
  /** Epoch milliseconds. */
  verifiedAt: number;
  checks: Check[];
}

export interface RevocationInHistory {
  leafIndex: number;
  kind: ArtifactKind;
  /** Epoch milliseconds. */
  at: number;
  /** Lower-case hex. */
  reasonHash: string;
}

/** All that was ever found and logged about one proof. */
export interface ProofHistory {
  /** Leaves in the log when it was asked. */
  logSize: number;
  /** Oldest first: the last one is in force. */
  verdicts: VerdictInHistory[];
  /** In log order, a repeated one included. */
  revocations: RevocationInHistory[];
  /** A row among the revocations is not the entry that the log has there: what it was is lost. */
  isDamaged?: boolean;
}

/** Nothing of it belongs to a tenant: whoever asks has found the proof among its own before. */
export async function proofHistory(
  db: Db,
  { proofId, leafIndex }: { proofId: string; leafIndex: number },
): Promise<ProofHistory> {
  // In this order: whoever sees a verdict sees every revocation that was in the log when it was made.
  const verdicts = await verdictsOn(db, leafIndex);
  const statuses = await statusesOf(db, [proofId]);
  const logSize = await treeSize(db);
  const revocations = statuses.flatMap(({ leafIndex: at, entry }): RevocationInHistory[] => {
    if (entry === null) return [];
    const { artifact_kind, reason_hash, time } = entry;
    return [{ leafIndex: at, kind: artifact_kind, at: parseTime(time), reasonHash: reason_hash }];
  });
  const isDamaged = statuses.some(({ entry }) => entry === null);
  return { logSize, verdicts, revocations, isDamaged };
}

function verdictsOn(db: Db, leafIndex: number): Promise<VerdictInHistory[]> {
  return asking(async () => {
    const rows = await db<
      {
        verdict_id: string;
        frontier: boolean;
        tree_size: string;
        outcome: 'pass' | 'fail';
        expired: ArtifactKind[];
        verified_at: Date;
        checks: Check[];
      }[]
    >`
      select verdict_id, frontier, tree_size, outcome, expired, verified_at, checks
      from (
        (select * from svc.verdict where frontier and last_index >= ${leafIndex}
          order by last_index limit 1)
        union all
        (select * from svc.verdict where not frontier and first_index = ${leafIndex})) as covering
      where first_index <= ${leafIndex}
      order by tree_size, verdict_id`;
    return rows.map((row) => ({
      verdictId: Number(row.verdict_id),
      frontier: row.frontier,
      treeSize: Number(row.tree_size),
      outcome: row.outcome,
      expired: row.expired,
      verifiedAt: row.verified_at.getTime(),
      checks: row.checks,
    }));
  });
}
