import type { AepSubject } from '#protocol/schemas/aep';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { exact, field, given, words, type Field } from './field.js';

export function partyFields({ aep }: ProofExport): Field[] {
  return [
    field('Tenant', exact(aep.tenant_id)),
    field(
      'Environment',
      words(aep.environment === 'sandbox' ? 'sandbox: not a live decision' : 'live'),
    ),
    ...subjectFields(aep.subject),
  ];
}

function subjectFields(subject: AepSubject): Field[] {
  switch (subject.kind) {
    case 'execute':
      return [field('Intent', exact(subject.intent_id)), field('Action', exact(subject.action))];
    case 'admission':
      return [
        field('Agent', exact(subject.agent.id)),
        ...given('Agent framework', subject.agent.framework),
        field('Action', exact(subject.action)),
        ...given('Tool', subject.tool),
        ...given('Arguments hash', subject.arguments_hash),
        ...given('Parent proof', subject.parent_proof_id),
      ];
    case 'outcome':
      return [
        field('Outcome of proof', exact(subject.parent_proof_id)),
        field('Reported result', exact(subject.result)),
        ...given('Result hash', subject.result_hash),
      ];
  }
}

export function decisionFields({ aep }: ProofExport): Field[] {
  const { decision, evidence, policy } = aep;
  const denied = decision.effect === 'DENY';
  return [
    field('Effect', words(denied ? 'Denied (DENY)' : 'Admitted (ADMIT)')),
    ...reasonFields(decision.reasons, denied),
    field('Accepted at', exact(aep.accepted_at)),
    field('Policy digest', exact(policy.digest)),
    field('Policy input hash', exact(policy.input_hash)),
    field('Policy engine', exact(`${policy.engine} ${policy.engine_version}`)),
    field(
      'Evidence',
      evidence.fixture_ref === null ? words('none named') : exact(evidence.fixture_ref),
    ),
    ...given('Evidence hash', evidence.fixture_hash),
  ];
}

/** Numbered, because a long reason wraps. */
function reasonFields(reasons: readonly string[], denied: boolean): Field[] {
  const { length } = reasons;
  if (length === 0) {
    return [field('Reason', words(denied ? 'no policy permits the action' : 'none given'))];
  }
  return reasons.map((reason, at) =>
    field(length === 1 ? 'Reason' : `Reason ${at + 1} of ${length}`, exact(reason)),
  );
}
