import type { AepSubject } from '#protocol/schemas/aep';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { ARTIFACT_KINDS, canAssertValidity } from '#protocol/status';

/** What the paper says first, in words of its own. */
export interface Headline {
  text: string;
  /** False: set so that nobody can take it for a valid one, in black and white too. */
  asserts: boolean;
  /** What is asserted, and that it is over where it is. */
  says: string[];
  /** What a reader might take it to say as well. */
  doesNotSay: string[];
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
    : [STANDING[status] ?? 'NOT ASSERTED', ...sandbox, effect];
  return {
    text: text.join(' · '),
    asserts,
    says: asserts ? [decided(aep.subject, denied), ...laterEnded(verdict)] : [notAny(status)],
    doesNotSay: [
      notSaid(aep.subject, denied),
      ...(sandbox.length > 0 ? ['Anything about live execution: it was made in a sandbox.'] : []),
      'What has become of it since: look that up, as said above.',
    ],
  };
}

function effectOf(subject: AepSubject, denied: boolean): string {
  const effect = denied ? 'Denied' : 'Admitted';
  return subject.kind === 'outcome'
    ? `${effect}: a report that an action ${subject.result}`
    : effect;
}

const STANDING: Partial<Record<string, string>> = { REVOKED: 'REVOKED', EXPIRED: 'EXPIRED' };

function notAny(status: string): string {
  switch (status) {
    case 'REVOKED':
      return 'This proof was revoked. It asserts nothing any more, and never will again. What follows is what it recorded.';
    case 'EXPIRED':
      return 'The validity of this proof is over. It asserts nothing any more. What follows is what it recorded.';
    default:
      return 'The verification system does not vouch for this proof. Nothing on this paper is to be relied on.';
  }
}

function decided(subject: AepSubject, denied: boolean): string {
  const what =
    subject.kind === 'outcome'
      ? 'the report on how an admitted action ended'
      : 'the action named below';
  return denied
    ? `By the policy in force when it was accepted, ${what} was denied. That denial is recorded, signed and in the log.`
    : `By the policy in force when it was accepted, ${what} was admitted. That decision is recorded, signed and in the log.`;
}

function notSaid(subject: AepSubject, denied: boolean): string {
  if (subject.kind === 'outcome') {
    return 'That the report is true: it records what was reported.';
  }
  return denied
    ? 'That the action was not carried out all the same: it records a decision.'
    : 'That the action was carried out, or how it ended: it records a decision.';
}

/** A proof may stand while what was built on it does not any more. */
function endedArtifacts({ artifacts }: ProofExport['verdict']): string[] {
  return ARTIFACT_KINDS.filter((kind) => STANDING[artifacts[kind]] !== undefined).map(
    (kind) => `${kind} ${artifacts[kind]}`,
  );
}

/** What comes after it has ended with it. */
function firstEnded(verdict: ProofExport['verdict']): string[] {
  return endedArtifacts(verdict).slice(0, 1);
}

function laterEnded(verdict: ProofExport['verdict']): string[] {
  const ended = endedArtifacts(verdict);
  return ended.length === 0
    ? []
    : [`Not everything built on this proof stands any more: ${ended.join(', ')}.`];
}
