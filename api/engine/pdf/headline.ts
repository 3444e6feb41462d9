import type { AepSubject } from '#protocol/schemas/aep';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { ARTIFACT_KINDS, canAssertValidity } from '#protocol/status';

/** Headline of the PDF, in fixed text. */
export interface Headline {
  text: string;
  /** False: set in white on black, so that it cannot pass for valid, even in a copy. */
  asserts: boolean;
  /** What the PDF asserts, or why it asserts nothing. */
  asserted: string[];
  /** What a reader might wrongly infer. */
  notAsserted: string[];
}

export function headlineOf({ aep, verdict }: ProofExport): Headline {
  const { verification_status: status } = verdict;
  const asserts = verdict.can_assert_validity && canAssertValidity(status);
  const sandbox = aep.environment === 'sandbox' ? ['Sandbox'] : [];
  const denied = aep.decision.effect === 'DENY';
  const effect = effectOf(aep.subject, denied);
  const text = asserts
    ? [
        ...sandbox,
        effect,
        `proof ${denied ? 'of the denial ' : ''}${status}`,
        ...firstEnded(verdict),
      ]
    : [ENDED[status] ?? 'NOT ASSERTED', ...sandbox, effect];
  return {
    text: text.join(' · '),
    asserts,
    asserted: asserts ? [decided(aep.subject, denied), ...laterEnded(verdict)] : [notAny(status)],
    notAsserted: [
      notInferable(aep.subject, denied),
      ...(sandbox.length > 0
        ? ['Anything about live execution: the decision was made in a sandbox.']
        : []),
      'Later changes of its status: use the public lookup above.',
    ],
  };
}

function effectOf(subject: AepSubject, denied: boolean): string {
  const effect = denied ? 'Denied' : 'Admitted';
  return subject.kind === 'outcome'
    ? `${effect}: a report that an action ${subject.result}`
    : effect;
}

const ENDED: Partial<Record<string, string>> = { REVOKED: 'REVOKED', EXPIRED: 'EXPIRED' };

function notAny(status: string): string {
  switch (status) {
    case 'REVOKED':
      return 'This proof was revoked permanently. It no longer asserts anything. The fields below show what it recorded.';
    case 'EXPIRED':
      return 'This proof has expired. It no longer asserts anything. The fields below show what it recorded.';
    default:
      return 'The verification system does not confirm this proof. Do not rely on anything in this PDF.';
  }
}

function decided(subject: AepSubject, denied: boolean): string {
  const object =
    subject.kind === 'outcome'
      ? 'the report on how an admitted action ended'
      : 'the action named below';
  return denied
    ? `By the policy in force when it was accepted, ${object} was denied. That denial is recorded, signed and in the log.`
    : `By the policy in force when it was accepted, ${object} was admitted. That decision is recorded, signed and in the log.`;
}

function notInferable(subject: AepSubject, denied: boolean): string {
  if (subject.kind === 'outcome') {
    return 'That the report is true: it records what was reported.';
  }
  return denied
    ? 'That the action was not carried out all the same: it records a decision.'
    : 'That the action was carried out, or how it ended: it records a decision.';
}

/** Artifacts of a valid proof may be revoked or expired. */
function endedArtifacts({ artifacts }: ProofExport['verdict']): string[] {
  return ARTIFACT_KINDS.filter((kind) => ENDED[artifacts[kind]] !== undefined).map(
    (kind) => `${kind} ${artifacts[kind]}`,
  );
}

/** Only the first in the chain: later artifacts depend on it and have ended with it. */
function firstEnded(verdict: ProofExport['verdict']): string[] {
  return endedArtifacts(verdict).slice(0, 1);
}

function laterEnded(verdict: ProofExport['verdict']): string[] {
  const ended = endedArtifacts(verdict);
  return ended.length === 0 ? [] : [`Artifacts of this proof have ended: ${ended.join(', ')}.`];
}
