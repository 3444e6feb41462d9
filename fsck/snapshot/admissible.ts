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
export function candidates(result: LeafCheckResult, scope: SnapshotScope): VerdictInHistory[][] {
  const { verdicts } = result;
  const before = verdicts.filter(({ frontier, verdictId, treeSize }) =>
    frontier ? treeSize <= scope.size : verdictId <= scope.verdictCursor,
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
export function admissible(result: LeafCheckResult | null, scope: SnapshotScope): Admissible[] {
  if (result === null) {
    return [
      { outcome: 'pass', expired: [] },
      ...ARTIFACT_KINDS.map((kind) => ({ outcome: 'pass' as const, expired: [kind] })),
      { outcome: 'fail', expired: [] },
      { outcome: 'erased', expired: [] },
    ];
  }
  const expired = result.ends.flatMap(({ kind, expiresAt }) =>
    expiresAt <= scope.verifierCheckedAt ? [kind] : [],
  );
  return candidates(result, scope).map((verdicts) => {
    const inForce = verdicts.at(-1);
    const stored = inForce?.outcome ?? 'fail';
    const isRefuted = stored === 'pass' && result.verifies === false && !result.isVoided;
    const outcome = isRefuted ? 'fail' : stored;
    return { outcome, expired: [...(inForce?.expired ?? []), ...expired] };
  });
}

/** The admissible statuses of an artifact. */
export function admissibleStatuses(
  kind: ArtifactKind,
  { effect, isOutcome }: Decided,
  found: readonly Admissible[],
  revoked: readonly ArtifactKind[],
): Set<VerificationStatus> {
  const statusWith = ({ outcome: verdict, expired }: Admissible): VerificationStatus =>
    verificationStatus({ kind, effect, isOutcome, verdict, revoked, expired });
  const statuses = new Set(found.map(statusWith));
  // A published revocation stays, also while the proof does not verify.
  if (statusWith({ outcome: 'pass', expired: [] }) === 'REVOKED') statuses.add('REVOKED');
  return statuses;
}
