import type { ProofEvent } from '#protocol/schemas/proof-view';
import { formatTime } from '#protocol/time';
import type { ProofHistory, VerdictInHistory } from '#sql/proof-history';
import { everInForce } from './standing.js';

/**
 * What became of a proof, in order. A verdict that says what the one before it said is no event:
 * the registry is verified again and again.
 */
export function eventsOf(
  proof: { acceptedAt: number; leafIndex: number },
  { verdicts, revocations }: ProofHistory,
): ProofEvent[] {
  const found = everInForce(verdicts).flatMap((verdict, index, all) =>
    changes(verdict, all[index - 1]),
  );
  const revoked = revocations.map((revocation): ProofEvent => ({
    event: 'revoked',
    at: formatTime(revocation.at),
    artifact: revocation.kind,
    leaf_index: revocation.leafIndex,
    reason_hash: revocation.reasonHash,
  }));
  return [
    { event: 'accepted', at: formatTime(proof.acceptedAt) },
    { event: 'appended', leaf_index: proof.leafIndex },
    // Times of one clock, and of one spelling that sorts as they do.
    ...[...found, ...revoked].sort((a, b) => (timeOf(a) < timeOf(b) ? -1 : 1)),
  ];
}

function timeOf(event: ProofEvent): string {
  return event.event === 'appended' ? '' : event.at;
}

function changes(verdict: VerdictInHistory, before: VerdictInHistory | undefined): ProofEvent[] {
  const seen = { at: formatTime(verdict.verifiedAt), log_size: verdict.treeSize };
  const events: ProofEvent[] = [];
  if (verdict.outcome !== before?.outcome) {
    events.push(
      verdict.outcome === 'pass'
        ? { event: 'verified', ...seen }
        : { event: 'failed', ...seen, checks: failedChecks(verdict) },
    );
  }
  const over = verdict.expired.filter((kind) => before?.expired.includes(kind) !== true);
  if (over.length > 0) events.push({ event: 'expired', ...seen, artifacts: over });
  return events;
}

function failedChecks({ checks }: VerdictInHistory): string[] {
  return checks.filter(({ result }) => result === 'fail').map(({ name }) => name);
}
