import type { Facade } from '#protocol/schemas/facade';
import { SCHEMA } from '#protocol/schemas/ids';
import type { PublicTrustChain } from '#protocol/schemas/public-views';
import { malformed } from '#protocol/snapshot/malformed';
import type { ArtifactKind } from '#protocol/status';
import type { Resolved } from '../lookup/resolve.js';
import { membersOf, verificationOf } from './published.js';

type Stage = PublicTrustChain['sequence'][number];

/** The identifier of each stage, and the artifact that provides its verdict. */
const STAGES: Record<Stage, { id: string; kind: ArtifactKind | null }> = {
  execution: { id: 'execution_id', kind: null },
  evidence: { id: 'registry_entry_id', kind: null },
  verification: { id: 'proof_id', kind: 'proof' },
  passport: { id: 'passport_id', kind: 'passport' },
  certificate: { id: 'certificate_id', kind: 'certificate' },
  trust_established: { id: 'trust_id', kind: 'trust' },
};

/** The trust chain of an artifact. Its verdicts come from the same record; none is computed. */
export function chainOf(response: Facade, resolved: Resolved | null): PublicTrustChain {
  const { available, sequence } = response.trust_chain;
  return {
    schema_version: SCHEMA.trustChain,
    ...membersOf(response),
    available,
    sequence,
    links: resolved === null ? [] : sequence.map((stage) => linkOf(stage, response, resolved)),
  };
}

function linkOf(
  stage: Stage,
  response: Facade,
  resolved: Resolved,
): PublicTrustChain['links'][number] {
  const { id, kind } = STAGES[stage];
  const identifier = (response.references as Record<string, unknown>)[id];
  const verification = kind && verificationOf(resolved, kind);
  if (typeof identifier !== 'string' || verification === undefined) {
    throw malformed(`the record lacks ${id}, which its chain needs`);
  }
  return {
    stage,
    identifier,
    verification_status: verification?.verification_status ?? null,
    can_assert_validity: verification?.can_assert_validity ?? false,
  };
}
