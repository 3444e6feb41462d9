import type { ProofEvent } from './schemas/proof-view.js';
import { ARTIFACT_KINDS, type ArtifactKind, type Outcome } from './status.js';
import { formatTime } from './time.js';

export interface VerdictInHistory {
  verdictId: number;
  /** Whether the row covers a range of leaves: each leaf passed, unless the leaf has a separate row. */
  frontier: boolean;
  treeSize: number;
  outcome: Outcome;
  expired: readonly ArtifactKind[];
  /** Epoch milliseconds. */
  verifiedAt: number;
  failedChecks: readonly string[];
}

export interface RevocationInHistory {
  leafIndex: number;
  kind: ArtifactKind;
  /** Epoch milliseconds. */
  at: number;
  reasonHash: string;
}

/**
 * The events of a proof, in order. A verdict equal to the previous verdict adds no event, because the
 * verifier checks the registry repeatedly.
 *
 * @param proof `acceptedAt` in epoch milliseconds
 * @param history the verdicts, oldest first, the last one in force; the revocations in log order,
 *   repeated ones included
 */
export function eventsOf(
  proof: { acceptedAt: number; leafIndex: number },
  history: {
    verdicts: readonly VerdictInHistory[];
    revocations: readonly RevocationInHistory[];
  },
): ProofEvent[] {
  const verdictEvents = effectiveVerdicts(history.verdicts).flatMap((verdict, index, all) =>
    changes(verdict, all[index - 1]),
  );
  const revoked = history.revocations.map((revocation): ProofEvent => ({
    event: 'revoked',
    at: formatTime(revocation.at),
    artifact: revocation.kind,
    leaf_index: revocation.leafIndex,
    reason_hash: revocation.reasonHash,
  }));
  return [
    { event: 'accepted', at: formatTime(proof.acceptedAt) },
    { event: 'appended', leaf_index: proof.leafIndex },
    ...[...verdictEvents, ...revoked].sort(byTime),
  ];
}

/**
 * A leaf that fails its first verification gets its own row in the transaction that extends the
 * verified prefix. For this leaf the prefix row was never in force, so it is omitted.
 */
export function effectiveVerdicts(verdicts: readonly VerdictInHistory[]): VerdictInHistory[] {
  const singles = verdicts.filter(({ frontier }) => !frontier);
  return verdicts.filter(
    (row) =>
      !row.frontier ||
      !singles.some(
        ({ treeSize, verifiedAt }) => treeSize === row.treeSize && verifiedAt === row.verifiedAt,
      ),
  );
}

function changes(verdict: VerdictInHistory, before: VerdictInHistory | undefined): ProofEvent[] {
  const seen = { at: formatTime(verdict.verifiedAt), log_size: verdict.treeSize };
  const events = verdict.outcome === before?.outcome ? [] : [outcomeEvent(verdict, seen)];
  const expired = ARTIFACT_KINDS.filter(
    (kind) => verdict.expired.includes(kind) && before?.expired.includes(kind) !== true,
  );
  if (expired.length > 0) events.push({ event: 'expired', ...seen, artifacts: expired });
  return events;
}

function outcomeEvent(
  { outcome, failedChecks }: VerdictInHistory,
  seen: { at: string; log_size: number },
): ProofEvent {
  switch (outcome) {
    case 'pass':
      return { event: 'verified', ...seen };
    case 'erased':
      return { event: 'erased', ...seen };
    case 'fail':
      return { event: 'failed', ...seen, checks: [...failedChecks] };
  }
}

/**
 * Sorts by time. All times come from one clock and have one format that sorts as text. At equal
 * times, verification results come before log entries.
 */
function byTime(a: ProofEvent, b: ProofEvent): number {
  const [at, other] = [timeOf(a), timeOf(b)];
  if (at === other) return RANK[a.event] - RANK[b.event];
  return at < other ? -1 : 1;
}

const RANK = {
  accepted: 0,
  appended: 1,
  verified: 2,
  failed: 2,
  erased: 2,
  expired: 2,
  revoked: 3,
};

function timeOf(event: ProofEvent): string {
  return event.event === 'accepted' || event.event === 'appended' ? '' : event.at;
}
