import { ID_PREFIX } from '#protocol/ids';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';

export interface ArtifactRow {
  kind: ArtifactKind;
  id: string;
  status: string;
  validUntil: string;
}

const ID_OF = {
  proof: ID_PREFIX.proof_id,
  passport: ID_PREFIX.passport_id,
  certificate: ID_PREFIX.certificate_id,
  trust: ID_PREFIX.trust_id,
} as const satisfies Record<ArtifactKind, string>;

/** The proof's artifacts; for a denial or an outcome only the proof itself. */
export function artifactRows({ aep, proof_id, verdict }: ProofExport): ArtifactRow[] {
  const ends: Partial<Record<ArtifactKind, string | null>> = aep.valid_until;
  return ARTIFACT_KINDS.filter((kind) => kind in ends).map((kind) => ({
    kind,
    id: ID_OF[kind] + proof_id,
    status: verdict.artifacts[kind],
    validUntil: ends[kind] ?? 'no end',
  }));
}
