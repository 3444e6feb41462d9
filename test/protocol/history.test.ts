import { expect, it } from 'vitest';
import { eventsOf, type VerdictInHistory } from '#protocol/history';
import { proofEventSchema } from '#protocol/schemas/proof-view';
import type { ArtifactKind } from '#protocol/status';
import { formatTime } from '#protocol/time';

const acceptedAt = Date.UTC(2026, 10, 20);
const at = (seconds: number): string => formatTime(acceptedAt + 1000 * seconds);
const reasonHash = 'ab'.repeat(32);

/** The verdict of a verification at this tree size and second. */
const verdict = (
  treeSize: number,
  outcome: 'pass' | 'fail',
  expired: ArtifactKind[] = [],
  frontier = false,
): Omit<VerdictInHistory, 'verdictId'> => ({
  frontier,
  treeSize,
  outcome,
  expired,
  verifiedAt: acceptedAt + 1000 * treeSize,
  failedChecks: outcome === 'pass' ? [] : ['signature'],
});

it('eventsOf > lists each change of the effective verdict, and the revocations, by time', () => {
  const verdicts = [
    // The leaf fails in the transaction that extends the verified prefix.
    verdict(10, 'pass', [], true),
    verdict(10, 'fail'),
    verdict(11, 'fail'),
    verdict(12, 'pass'),
    verdict(14, 'pass', ['passport']),
    verdict(15, 'pass', ['trust', 'certificate', 'passport']),
    verdict(16, 'fail', ['trust', 'certificate', 'passport']),
  ].map((one, index) => ({ verdictId: index + 1, ...one }));
  const revocation = (seconds: number, kind: ArtifactKind) => ({
    ...{ leafIndex: seconds, kind, reasonHash },
    at: acceptedAt + 1000 * seconds,
  });
  const revocations = [revocation(13, 'certificate'), revocation(14, 'proof')];
  const events = eventsOf({ acceptedAt, leafIndex: 4 }, { verdicts, revocations });
  for (const event of events) expect(proofEventSchema.parse(event)).toEqual(event);
  const revoked = { event: 'revoked', reason_hash: reasonHash };
  expect(events).toEqual([
    { event: 'accepted', at: at(0) },
    { event: 'appended', leaf_index: 4 },
    { event: 'failed', at: at(10), log_size: 10, checks: ['signature'] },
    { event: 'verified', at: at(12), log_size: 12 },
    { ...revoked, at: at(13), artifact: 'certificate', leaf_index: 13 },
    { event: 'expired', at: at(14), log_size: 14, artifacts: ['passport'] },
    { ...revoked, at: at(14), artifact: 'proof', leaf_index: 14 },
    { event: 'expired', at: at(15), log_size: 15, artifacts: ['certificate', 'trust'] },
    { event: 'failed', at: at(16), log_size: 16, checks: ['signature'] },
  ]);
});
