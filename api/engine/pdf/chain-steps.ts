import { decidedIn } from '#protocol/aep';
import { ID_PREFIX } from '#protocol/ids';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { canAssertValidity, trustChainOf, type TRUST_CHAIN } from '#protocol/status';

type StepName = (typeof TRUST_CHAIN)['FULL']['sequence'][number];

/** One step of the trust chain as it is drawn. */
export interface ChainStep {
  name: string;
  /** What the registry says of it, in a word. */
  state: string;
  /** False: it is crossed out, and what leads to it is broken. */
  stands: boolean;
  /** The id or hash that it goes by, or why there is none. */
  reference: { exact: string } | { words: string };
}

/** The steps in the documented order; those of a denial or an outcome end with the third. */
export function chainSteps(document: ProofExport): ChainStep[] {
  const { sequence } = trustChainOf(decidedIn(document.aep));
  return sequence.map((name) => ({ name: name.replaceAll('_', ' '), ...stepOf(name, document) }));
}

function stepOf(name: StepName, document: ProofExport): Omit<ChainStep, 'name'> {
  const { aep, entry, proof_id, verdict } = document;
  const judged = (status: string) => ({ state: status, stands: canAssertValidity(status) });
  switch (name) {
    case 'execution':
      return { state: 'recorded', stands: true, reference: { exact: aep.execution_id } };
    case 'evidence':
      return { ...evidenceOf(aep.evidence), stands: true };
    case 'verification':
      return {
        ...judged(verdict.verification_status),
        reference: { exact: `aep ${entry.aep_hash}` },
      };
    case 'passport':
      return {
        ...judged(verdict.artifacts.passport),
        reference: { exact: ID_PREFIX.passport_id + proof_id },
      };
    case 'certificate':
      return {
        ...judged(verdict.artifacts.certificate),
        reference: { exact: ID_PREFIX.certificate_id + proof_id },
      };
    case 'trust_established':
      return {
        ...judged(verdict.artifacts.trust),
        reference: { exact: ID_PREFIX.trust_id + proof_id },
      };
  }
}

function evidenceOf({
  fixture_hash,
  fixture_ref,
}: ProofExport['aep']['evidence']): Omit<ChainStep, 'name' | 'stands'> {
  if (fixture_hash !== null) return { state: 'bound', reference: { exact: fixture_hash } };
  return fixture_ref === null
    ? { state: 'none named', reference: { words: 'The request named no evidence.' } }
    : {
        state: 'unresolved',
        reference: { words: 'The evidence that the request named was not known to the registry.' },
      };
}
