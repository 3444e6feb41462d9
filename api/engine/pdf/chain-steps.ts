import { decidedIn } from '#protocol/aep';
import { ID_PREFIX } from '#protocol/ids';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { canAssertValidity, trustChainOf, type TRUST_CHAIN } from '#protocol/status';

type StepName = (typeof TRUST_CHAIN)['FULL']['sequence'][number];

export interface ChainStep {
  name: string;
  /** Status in a word. */
  state: string;
  /** False: drawn crossed out, with a broken link. */
  isAsserted: boolean;
  /** Id or hash, or the reason why it is absent. */
  reference: { exact: string } | { words: string };
}

/** Steps in documented order. A denial or an outcome has only the first three. */
export function chainSteps(document: ProofExport): ChainStep[] {
  const { sequence } = trustChainOf(decidedIn(document.aep));
  return sequence.map((name) => ({ name: name.replaceAll('_', ' '), ...stepOf(name, document) }));
}

function stepOf(name: StepName, document: ProofExport): Omit<ChainStep, 'name'> {
  const { aep, entry, proof_id, verdict } = document;
  const statusOf = (status: string) => ({ state: status, isAsserted: canAssertValidity(status) });
  switch (name) {
    case 'execution':
      return { state: 'recorded', isAsserted: true, reference: { exact: aep.execution_id } };
    case 'evidence':
      return { ...evidenceOf(aep.evidence), isAsserted: true };
    case 'verification':
      return {
        ...statusOf(verdict.verification_status),
        reference: { exact: `aep ${entry.aep_hash}` },
      };
    case 'passport':
      return {
        ...statusOf(verdict.artifacts.passport),
        reference: { exact: ID_PREFIX.passport_id + proof_id },
      };
    case 'certificate':
      return {
        ...statusOf(verdict.artifacts.certificate),
        reference: { exact: ID_PREFIX.certificate_id + proof_id },
      };
    case 'trust_established':
      return {
        ...statusOf(verdict.artifacts.trust),
        reference: { exact: ID_PREFIX.trust_id + proof_id },
      };
  }
}

function evidenceOf({
  fixture_hash,
  fixture_ref,
}: ProofExport['aep']['evidence']): Omit<ChainStep, 'name' | 'isAsserted'> {
  if (fixture_hash !== null) return { state: 'bound', reference: { exact: fixture_hash } };
  return fixture_ref === null
    ? { state: 'none named', reference: { words: 'The request named no evidence.' } }
    : {
        state: 'unresolved',
        reference: { words: 'The registry does not know the evidence that the request named.' },
      };
}
