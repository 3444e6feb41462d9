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

/** An admissible published state; a moving registry allows more than one. */
export interface Admissible {
  outcome: Outcome;
  expired: readonly ArtifactKind[];
}

/** The inputs that a manifest covers. */
export interface SnapshotScope {
  /** Leaves. */
  size: number;
  /** Verdicts on single leaves up to this one are included; later ones may be. */
  verdictCursor: number;
  /** Artifacts expired by then must be published as expired; epoch milliseconds. */
  verifierCheckedAt: number;
}

/** The verdicts in effect when the snapshot was made, and those written during it. */
export function candidates(
  result: LeafCheckResult,
  spokenFor: SnapshotScope,
): VerdictInHistory[][] {
  const { verdicts } = result;
  const before = verdicts.filter(({ frontier, verdictId, treeSize }) =>
    frontier ? treeSize <= spokenFor.size : verdictId <= spokenFor.verdictCursor,
  );
  const later = verdicts.filter((verdict) => !before.includes(verdict));
  return [before, ...later.map((_, i) => [...before, ...later.slice(0, i + 1)])];
}

/**
 * The admissible published states of a proof. The result found here overrides a verdict: a failing proof
 * must not be valid, and an artifact that expired by its AEP is expired. A proof that a compromised key
 * voids may be valid until the verifier verifies it again, because readers void it by the list of keys,
 * which is checked against the log.
 *
 * @param result null when only the snapshot is checked: then only the log's own facts are required
 */
export function admissible(result: LeafCheckResult | null, spokenFor: SnapshotScope): Admissible[] {
  if (result === null) {
    return [
      { outcome: 'pass', expired: [] },
      ...ARTIFACT_KINDS.map((kind) => ({ outcome: 'pass' as const, expired: [kind] })),
      { outcome: 'fail', expired: [] },
      { outcome: 'erased', expired: [] },
    ];
  }
  const over = result.ends.flatMap(({ kind, expiresAt }) =>
    expiresAt <= spokenFor.verifierCheckedAt ? [kind] : [],
  );
  return candidates(result, spokenFor).map((verdicts) => {
    const inForce = verdicts.at(-1);
    const said = inForce?.outcome ?? 'fail';
    const outcome =
      said === 'pass' && result.verifies === false && !result.isVoided ? 'fail' : said;
    return { outcome, expired: [...(inForce?.expired ?? []), ...over] };
  });
}

/** The admissible statuses of an artifact. */
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
  // A published revocation stays, also while the proof does not verify.
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
