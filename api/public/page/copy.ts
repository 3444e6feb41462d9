import type { ArtifactKind, VerificationStatus } from '#protocol/status';
import { isOutcome, type Relayed } from './relayed.js';

/** How a verdict is told to a person. The shape of the mark and the words differ, not only the colour. */
export interface VerdictCopy {
  mark: Mark;
  headline: string;
  lead: string;
  /** What to do about it. */
  advice?: string;
  /** What the answer asserts; empty when it asserts nothing. */
  says: string[];
  saysNot: string[];
}

export type Mark = 'good' | 'denied' | 'revoked' | 'expired' | 'absent' | 'open';

/** A status in a word or two, and its mark, where it stands beside others. The worst come first. */
export const WORD: Record<VerificationStatus, string> = {
  REVOKED: 'Revoked',
  EXPIRED: 'Expired',
  NOT_FOUND: 'Not found',
  BACKEND_LOOKUP_REQUIRED: 'Not confirmed',
  VALID: 'Valid',
  VERIFIED: 'Verified',
  PASS: 'Passes',
  TRUST_ESTABLISHED: 'Trust established',
};
export const MARK: Record<VerificationStatus, Mark> = {
  REVOKED: 'revoked',
  EXPIRED: 'expired',
  NOT_FOUND: 'absent',
  BACKEND_LOOKUP_REQUIRED: 'open',
  VALID: 'good',
  VERIFIED: 'good',
  PASS: 'good',
  TRUST_ESTABLISHED: 'good',
};

const COPIED = 'Check that the whole identifier was copied, and nothing else.';
export const ENDS = 'A printed or saved copy is no verdict: ask again before you rely on it.';

export function tellNotFound(treeSize: number): VerdictCopy {
  return {
    mark: 'absent',
    headline: 'Not found',
    lead: 'The registry holds no proof with this identifier.',
    advice: COPIED,
    says: [`With ${count(treeSize)} entries in the log, none is of a proof with this identifier.`],
    saysNot: [
      'That there never will be one. A proof that was made a moment ago appears within seconds.',
      'Anything about what was asked for. One wrong character is enough not to be found.',
    ],
  };
}

/** @param byToken whether a share token was asked for, or something that may have been meant as one */
export function tell(relayed: Relayed, byToken = false): VerdictCopy {
  const { lookup, verification, artifact } = relayed;
  if (lookup.matched_on === null) return byToken ? tellDarkToken() : tellUnresolved();
  if (artifact.effect === 'DENY') return tellDenied(relayed);
  if (isOutcome(relayed) && verification.can_assert_validity) return OUTCOME;
  const kind = relayed.artifact_kind;
  switch (verification.verification_status) {
    case 'VALID':
    case 'VERIFIED':
    case 'PASS':
    case 'TRUST_ESTABLISHED':
      return {
        mark: 'good',
        headline: POSITIVE[verification.verification_status](kind),
        lead: kind === 'proof' ? ADMITTED : `It rests on a proof: ${lowerFirst(ADMITTED)}`,
        says: [
          'An action was admitted: the policy in force permitted it.',
          'A signed proof of that stands in the log named below.',
          'The verification system checked that proof and its place in the log.',
        ],
        saysNot: [
          'That the action was carried out, or how it went. Only that it was admitted.',
          'What the action was, or who asked for it. Neither is public.',
          `That this will stay so. It can be revoked or expire. ${ENDS}`,
        ],
      };
    case 'REVOKED':
      return {
        mark: 'revoked',
        headline: `Revoked ${NOUN[kind]}`,
        lead: `${ended(kind, 'was revoked')} Do not rely on it.`,
        says: [`The ${NOUN[kind]} was issued, and has been revoked since. A revocation is final.`],
        saysNot: ['Why it was revoked. The reason is not public.', HOLDS],
      };
    case 'EXPIRED':
      return {
        mark: 'expired',
        headline: `Expired ${NOUN[kind]}`,
        lead: `${ended(kind, 'has expired')} Do not rely on it.`,
        says: [`The ${NOUN[kind]} was issued, and its time has run out since.`],
        saysNot: ['That anything was wrong with it while it lasted.', HOLDS],
      };
    case 'NOT_FOUND':
    case 'BACKEND_LOOKUP_REQUIRED':
      return tellUnconfirmed(NOUN[kind]);
  }
}

/** Not headed by a good word: the action may have failed, and the result is not public. */
const OUTCOME: VerdictCopy = {
  mark: 'open',
  headline: 'Outcome recorded',
  lead: 'An agent reported how an action ended. This is a valid proof of the report.',
  says: [
    'A report on an action that was admitted before was recorded.',
    'A signed proof of that is in the log named below.',
    'The verification system checked that proof and its place in the log.',
  ],
  saysNot: [
    'That the action succeeded, or that the report is true. No passport, certificate or trust follows from an outcome.',
    'What the action was, who reported, or with what result. None of it is public.',
    `That this will stay so. The proof can be revoked or expire. ${ENDS}`,
  ],
};

const ADMITTED = 'An action was admitted, and the log holds the signed proof of it.';
export const HOLDS = 'That it still holds.';

export const NOUN = {
  proof: 'proof',
  certificate: 'certificate',
  passport: 'passport',
  trust: 'trust artifact',
} as const satisfies Record<ArtifactKind, string>;

/** What rests on something ends with it, and the answer does not say which of them ended. */
function ended(kind: ArtifactKind, how: string): string {
  const rests = kind === 'proof' ? '' : ', or something that it rests on,';
  return `This ${NOUN[kind]}${rests} ${how}.`;
}

export const POSITIVE = {
  VALID: (kind: string) => `Valid ${kind}`,
  VERIFIED: (kind: string) => `Verified ${kind}`,
  PASS: (kind: string) => `${upperFirst(kind)} passes`,
  TRUST_ESTABLISHED: () => 'Trust established',
} as const;

/** A denial is never headed by a good word: what is valid about it is the proof that it was denied. */
function tellDenied({ artifact_kind: kind, verification }: Relayed): VerdictCopy {
  const { verification_status: status, can_assert_validity: asserts } = verification;
  if (asserts) {
    return {
      mark: 'denied',
      headline: 'Denied',
      lead: `The action was refused. This is a valid ${kind} of the refusal.`,
      says: [
        'An action was refused: the policy in force did not permit it.',
        'A signed proof of the refusal stands in the log named below.',
        'The verification system checked that proof and its place in the log.',
      ],
      saysNot: [
        'That anything was allowed. No passport, certificate or trust follows from a denial.',
        'What the action was, who asked for it, or why it was refused. None of it is public.',
        `That this will stay so. The proof can be revoked or expire. ${ENDS}`,
      ],
    };
  }
  if (status === 'REVOKED' || status === 'EXPIRED') {
    return {
      mark: status === 'REVOKED' ? 'revoked' : 'expired',
      headline: `Denied, and ${status.toLowerCase()}`,
      lead: `The action was refused, and the ${kind} of the refusal no longer holds.`,
      says: [`An action was refused. The ${kind} of that was issued, and has ended since.`],
      saysNot: [ALLOWED, HOLDS],
    };
  }
  return {
    mark: 'open',
    headline: 'Denied, and not confirmed',
    lead: `The log has an entry for this denial, but the verification system does not confirm it.`,
    says: [],
    saysNot: [ALLOWED, UNDECIDED],
  };
}

const ALLOWED = 'That anything was allowed.';
export const UNDECIDED =
  'That it is valid, or that it is not. It may not have been checked yet, or a check did not pass.';

function tellUnconfirmed(kind: string): VerdictCopy {
  return {
    mark: 'open',
    headline: 'Not confirmed',
    lead: `The log has an entry for this ${kind}, but the verification system does not confirm it.`,
    says: [],
    saysNot: [UNDECIDED, 'That it will stay so. Ask again later.'],
  };
}

function tellUnresolved(): VerdictCopy {
  return {
    mark: 'open',
    headline: 'Not resolved',
    lead: 'Nothing can be said here about this identifier.',
    advice: `${COPIED} Whoever gave it to you can also give you the identifier of the proof.`,
    says: [],
    saysNot: ['That it is valid, or that it is not.', 'That nothing has such an identifier.'],
  };
}

/** Whatever the reason: who holds a token that shows nothing is not told whether it ever did. */
function tellDarkToken(): VerdictCopy {
  return {
    mark: 'open',
    headline: 'Not resolved',
    lead: 'This share link shows nothing.',
    advice:
      'There may be no such link, it may have been revoked or be over, or what it is for is not published. ' +
      'Check that the whole of it was copied, or ask whoever gave it to you.',
    says: [],
    saysNot: ['Which of these it is.', 'That what it is for is valid, or that it is not.'],
  };
}

export function count(n: number): string {
  return n.toLocaleString('en-US');
}

export function upperFirst(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
