import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import { parseTime } from '#protocol/time';
import type { LeafEvidence } from '#sql/evidence';
import type { Expiry } from '#sql/verdicts';
import { readAep } from './check-leaf.js';

/** When the artifacts of verified proofs stop asserting, as their signed AEPs say. */
export function endsOf(leaves: readonly LeafEvidence[]): Expiry[] {
  return leaves.flatMap(({ leafIndex, proof }) => {
    const aep = proof === null || proof.aep === null ? null : readAep(proof.aep);
    if (aep === null) return [];
    const ends: Partial<Record<ArtifactKind, string | null>> = aep.valid_until;
    return ARTIFACT_KINDS.flatMap((kind) => {
      const end = ends[kind];
      return end === undefined || end === null
        ? []
        : [{ leafIndex, kind, expiresAt: parseTime(end) }];
    });
  });
}

/** The artifacts of a leaf whose signed validity is over at `now`, in epoch milliseconds. */
export function overAt(now: number, leaf: LeafEvidence | undefined): ArtifactKind[] {
  const ends = leaf === undefined ? [] : endsOf([leaf]);
  return ends.filter(({ expiresAt }) => expiresAt <= now).map(({ kind }) => kind);
}
