import type { AepSubject } from '#protocol/schemas/aep';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { ARTIFACT_KINDS, canAssertValidity } from '#protocol/status';

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
  const { verification_status: status, artifacts } = verdict;
  const asserts = verdict.can_assert_validity && canAssertValidity(status);
  const sandbox = aep.environment === 'sandbox';
  const denied = aep.decision.effect === 'DENY';
  const isOutcome = aep.subject.kind === 'outcome';
  // Artifacts of a valid proof may be revoked or expired.
  const ended = ARTIFACT_KINDS.filter((kind) => ENDED.has(artifacts[kind])).map(
    (kind) => `${kind} ${artifacts[kind]}`,
  );
  const effect = effectOf(aep.subject, denied);
  const text = asserts
    ? // Only the first in the chain: later artifacts depend on it and have ended with it.
      [effect, `proof ${denied ? 'of the denial ' : ''}${status}`, ...ended.slice(0, 1)]
    : [effect];
  return {
    text: [
      ...(asserts ? [] : [ENDED.has(status) ? status : 'NOT ASSERTED']),
      ...(sandbox ? ['Sandbox'] : []),
      ...text,
    ].join(' · '),
    asserts,
    asserted: asserts
      ? [
          decided(isOutcome, denied),
          ...(ended.length > 0 ? [`Artifacts of this proof have ended: ${ended.join(', ')}.`] : []),
        ]
      : [assertsNothing(status)],
    notAsserted: [
      notInferable(isOutcome, denied),
      ...(sandbox ? ['Anything about live execution: the decision was made in a sandbox.'] : []),
      'Later changes of its status: use the public lookup above.',
    ],
  };
}

const ENDED: ReadonlySet<string> = new Set(['REVOKED', 'EXPIRED']);

function effectOf(subject: AepSubject, denied: boolean): string {
  const effect = denied ? 'Denied' : 'Admitted';
  return subject.kind === 'outcome'
    ? `${effect}: a report that an action ${subject.result}`
    : effect;
}

function assertsNothing(status: string): string {
  if (!ENDED.has(status)) {
    return 'The verification system does not confirm this proof. Do not rely on anything in this PDF.';
  }
  const end = status === 'REVOKED' ? 'was revoked permanently' : 'has expired';
  return `This proof ${end}. It no longer asserts anything. The fields below show what it recorded.`;
}

function decided(isOutcome: boolean, denied: boolean): string {
  const object = isOutcome
    ? 'the report on how an admitted action ended'
    : 'the action named below';
  const [effect, noun] = denied ? ['denied', 'denial'] : ['admitted', 'decision'];
  return `By the policy in force when it was accepted, ${object} was ${effect}. That ${noun} is recorded, signed and in the log.`;
}

function notInferable(isOutcome: boolean, denied: boolean): string {
  if (isOutcome) return 'That the report is true: it records what was reported.';
  return denied
    ? 'That the action was not carried out all the same: it records a decision.'
    : 'That the action was carried out, or how it ended: it records a decision.';
}
