import type { VerdictInHistory } from '#protocol/history';
import {
  ARTIFACT_KINDS,
  verificationStatus,
  type ArtifactKind,
  type Decided,
  type Outcome,
  type VerificationStatus,
} from '#protocol/status';
import type { LeafCheckResult } from '../registry/check-leaf.js';

/** What a published proof may say of itself: more than one thing only while the registry moves. */
export interface Admissible {
  outcome: Outcome;
  expired: readonly ArtifactKind[];
}

/** As far as a manifest goes. */
export interface SnapshotScope {
  /** Leaves. */
  size: number;
  /** Verdicts on single leaves up to this one are in it; later ones may be. */
  verdictCursor: number;
  /** What was over by then must be said to be, in epoch milliseconds. */
  verifierCheckedAt: number;
}

/** The verdicts that were in force when the snapshot was made, or came to be while it was. */
export function candidates(
  judged: LeafCheckResult,
  spokenFor: SnapshotScope,
): VerdictInHistory[][] {
  const { verdicts } = judged;
  const before = verdicts.filter(({ frontier, verdictId, treeSize }) =>
    frontier ? treeSize <= spokenFor.size : verdictId <= spokenFor.verdictCursor,
  );
  const later = verdicts.filter((verdict) => !before.includes(verdict));
  return [before, ...later.map((_, i) => [...before, ...later.slice(0, i + 1)])];
}

/**
 * What is admissible to say of a proof. What was found here outweighs a verdict: a proof that does
 * not verify asserts nothing, and what is over by its AEP is over, whatever a verdict says. A record
 * may assert what a compromised key voids until the verifier has come round: readers void it by the
 * list of keys, which is checked against the log.
 *
 * @param judged null when only the public half is looked at: then nothing but what the log itself
 *   says can be demanded
 */
export function admissible(judged: LeafCheckResult | null, spokenFor: SnapshotScope): Admissible[] {
  if (judged === null) {
    return [
      { outcome: 'pass', expired: [] },
      ...ARTIFACT_KINDS.map((kind) => ({ outcome: 'pass' as const, expired: [kind] })),
      { outcome: 'fail', expired: [] },
      { outcome: 'erased', expired: [] },
    ];
  }
  const over = judged.ends.flatMap(({ kind, expiresAt }) =>
    expiresAt <= spokenFor.verifierCheckedAt ? [kind] : [],
  );
  return candidates(judged, spokenFor).map((verdicts) => {
    const inForce = verdicts.at(-1);
    const said = inForce?.outcome ?? 'fail';
    const outcome =
      said === 'pass' && judged.verifies === false && !judged.isVoided ? 'fail' : said;
    return { outcome, expired: [...(inForce?.expired ?? []), ...over] };
  });
}

/** The statuses that an artifact may be published with. */
export function admissibleStatuses(
  kind: ArtifactKind,
  { effect, isOutcome }: Decided,
  found: readonly Admissible[],
  revoked: readonly ArtifactKind[],
): Set<VerificationStatus> {
  const statuses = new Set(
    found.map(({ outcome, expired }) =>
      verificationStatus({ kind, effect, isOutcome, verdict: outcome, revoked, expired }),
    ),
  );
  // What the public was told is revoked stays so, also while the proof does not verify.
  const wasRevoked = verificationStatus({
    kind,
    effect,
    isOutcome,
    verdict: 'pass',
    revoked,
    expired: [],
  });
  if (wasRevoked === 'REVOKED') statuses.add(wasRevoked);
  return statuses;
}
