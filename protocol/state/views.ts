import type { Facade, PublicHistory, PublicTrustChain } from '../schemas/facade.js';
import { SCHEMA } from '../schemas/ids.js';
import { canAssertValidity, type ArtifactKind } from '../status.js';
import { historyOf, statusOf, type ProofFacts } from './answers.js';
import type { RecordedEvent } from './record.js';

/** The views of an artifact, from its lookup response and the records of its proof (spec/answers.md, section 16). */

export interface RecordedProof extends ProofFacts {
  history: readonly RecordedEvent[];
}

export function membersOf({ artifact_kind, identifier, lookup, verification }: Facade) {
  const { verification_status, can_assert_validity } = verification;
  return { artifact_kind, identifier, lookup, verification_status, can_assert_validity };
}

/** The status history of an artifact; empty without a proof, because the lookup did not resolve. */
export function historyView(response: Facade, proof: RecordedProof | null): PublicHistory {
  const events = proof === null ? [] : historyOf(response.artifact_kind, proof, proof.history);
  return {
    schema_version: SCHEMA.history,
    ...membersOf(response),
    events: events,
  };
}

/** The identifier of each stage, and the artifact that provides its verdict. */
const STAGES: Record<
  PublicTrustChain['sequence'][number],
  { id: string; kind: ArtifactKind | null }
> = {
  execution: { id: 'execution_id', kind: null },
  evidence: { id: 'registry_entry_id', kind: null },
  verification: { id: 'proof_id', kind: 'proof' },
  passport: { id: 'passport_id', kind: 'passport' },
  certificate: { id: 'certificate_id', kind: 'certificate' },
  trust_established: { id: 'trust_id', kind: 'trust' },
};

/** The trust chain of an artifact; empty when the lookup did not resolve. */
export function chainView(response: Facade, proof: RecordedProof | null): PublicTrustChain {
  const { available, sequence } = response.trust_chain;
  const ids = response.references as Record<string, string>;
  const links = sequence.map((stage) => {
    const { id, kind } = STAGES[stage];
    const status = kind && proof && statusOf(kind, proof);
    return {
      stage,
      identifier: ids[id]!,
      verification_status: status,
      can_assert_validity: status !== null && canAssertValidity(status),
    };
  });
  return {
    schema_version: SCHEMA.trustChain,
    ...membersOf(response),
    available,
    sequence,
    links,
  };
}
