import type { Aep } from '#protocol/schemas/aep';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import { parseTime } from '#protocol/time';
import type { Expiry } from '#sql/verdicts';

/** When the artifacts of a verified proof stop asserting, as its signed AEP says; of none, never. */
export function expiriesOf(leafIndex: number, aep: Aep | null): Expiry[] {
  if (aep === null) return [];
  const ends: Partial<Record<ArtifactKind, string | null>> = aep.valid_until;
  return ARTIFACT_KINDS.flatMap((kind) => {
    const end = ends[kind];
    return end === undefined || end === null
      ? []
      : [{ leafIndex, kind, expiresAt: parseTime(end) }];
  });
}
