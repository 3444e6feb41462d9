import { ARTIFACT_NOUNS, type VerificationStatus } from '#protocol/status';
import { isReport, membersIn, type Relayed } from './relayed.js';

/** Text and symbol of a verdict. Symbols differ in shape as well as colour (WCAG 1.4.1). */
export interface VerdictCopy {
  mark: Mark;
  headline: string;
  lead: string;
  advice?: string;
  /** Statements that the verdict supports; empty when it supports none. */
  claims: string[];
  /** Conclusions that a reader might draw and must not. */
  nonClaims: string[];
}

export type Mark = 'good' | 'denied' | 'revoked' | 'expired' | 'absent' | 'open';

/** Short name and symbol of each status for lists, worst first: `tally` relies on the order. */
export const SHORT: Record<VerificationStatus, { word: string; mark: Mark }> = {
  REVOKED: { word: 'Revoked', mark: 'revoked' },
  EXPIRED: { word: 'Expired', mark: 'expired' },
  NOT_FOUND: { word: 'Not found', mark: 'absent' },
  BACKEND_LOOKUP_REQUIRED: { word: 'Not confirmed', mark: 'open' },
  VALID: { word: 'Valid', mark: 'good' },
  VERIFIED: { word: 'Verified', mark: 'good' },
  PASS: { word: 'Passes', mark: 'good' },
  TRUST_ESTABLISHED: { word: 'Trust established', mark: 'good' },
};

const COPIED = 'Check that you copied the whole identifier and no other characters.';
const ENDS =
  'A printed or saved copy may be out of date: look up the identifier again before you rely on it.';

export function notFoundCopy(treeSize: number): VerdictCopy {
  return {
    mark: 'absent',
    headline: 'Not found',
    lead: 'The registry has published no proof with this identifier.',
    advice: COPIED,
    claims: [
      `The log has ${count(treeSize)} entries. None of them belongs to a proof with this identifier that the verifier has checked.`,
    ],
    nonClaims: [
      'That no such proof will ever exist. A new proof appears within seconds.',
      'Whether what you are checking is genuine. One wrong character is enough for a lookup to find nothing.',
    ],
  };
}

/** @param byToken whether the identifier is a share token, or may be a misspelled one */
export function verdictCopy(relayed: Relayed, byToken = false): VerdictCopy {
  const { lookup, verification, artifact, artifact_kind: kind } = relayed;
  const { verification_status: status, can_assert_validity: asserts } = verification;
  const members = membersIn(relayed);
  if (members !== null) return packageCopy(status, members.length);
  if (lookup.matched_on === null) return byToken ? UNRESOLVABLE_TOKEN : UNRESOLVED;
  if (artifact.effect === 'DENY') return notAdmittedCopy(verification, denial(kind));
  if (artifact.effect === 'REQUIRE_APPROVAL') {
    return notAdmittedCopy(verification, requiredApproval(kind));
  }
  if (isReport(relayed) && asserts) return REPORT;
  const headline = POSITIVE[status]?.(kind);
  if (headline !== undefined) {
    return {
      mark: 'good',
      headline,
      lead:
        kind === 'proof'
          ? `An ${ADMITTED}`
          : `The ${ARTIFACT_NOUNS[kind]} depends on a proof: an ${ADMITTED}`,
      claims: ['An action was admitted: the policy in force permitted it.', ...RECORDED],
      nonClaims: [
        'That the action was carried out, or with what result.',
        'What the action was, or who requested it. Neither is public.',
        `That this stays true. The ${ARTIFACT_NOUNS[kind]} can be revoked or expire. ${ENDS}`,
      ],
    };
  }
  const noun = ARTIFACT_NOUNS[kind];
  if (status === 'REVOKED' || status === 'EXPIRED') {
    // An artifact is revoked or expires with any artifact that it depends on; the response does not name the cause.
    const dependency = kind === 'proof' ? '' : ', or something it depends on,';
    return endedCopy(status, noun, {
      lead: `This ${noun}${dependency} ${HOW[status]}. Do not rely on it.`,
      claims: {
        REVOKED: `The ${noun} was issued. It${dependency} was later revoked. A revocation is final.`,
        EXPIRED: `The ${noun} was issued. Its validity period${dependency && ', or that of something it depends on,'} has ended.`,
      },
      nonClaims: [HOLDS],
    });
  }
  return {
    mark: 'open',
    headline: 'Not confirmed',
    lead: `The log has an entry for this ${noun}, but the verification system does not confirm it.`,
    claims: [],
    nonClaims: [UNDECIDED, LATER],
  };
}

const RECORDED = [
  'The log named below contains the signed proof.',
  'The verification system checked that proof and its place in the log.',
];

/**
 * The headline is neutral: an action may have failed, and the log shows neither a result nor whether
 * the report is about an action or a run.
 */
const REPORT: VerdictCopy = {
  mark: 'open',
  headline: 'Report recorded',
  lead: 'An agent reported that an action or a run ended. This is a valid proof of the report.',
  claims: ['A report on the end of an action or of a run was recorded.', ...RECORDED],
  nonClaims: [
    'That an action succeeded, or that the report is true. No passport, certificate or trust follows from a report.',
    'What ended, who reported it, or its result. None of this is public.',
    `That this stays true. The proof can be revoked or expire. ${ENDS}`,
  ],
};

const ADMITTED = 'action was admitted, and the log holds the signed proof of it.';
const HOLDS = 'That it is still valid.';

const HOW = { REVOKED: 'was revoked', EXPIRED: 'has expired' };

function endedCopy(
  status: keyof typeof HOW,
  noun: string,
  texts: { lead: string; claims: typeof HOW; nonClaims: string[] },
): VerdictCopy {
  const cause = {
    REVOKED: 'Why it was revoked. The reason is not public.',
    EXPIRED: 'That anything was wrong with it before it expired.',
  };
  return {
    mark: SHORT[status].mark,
    headline: `${SHORT[status].word} ${noun}`,
    lead: texts.lead,
    claims: [texts.claims[status]],
    nonClaims: [cause[status], ...texts.nonClaims],
  };
}

/** The headlines of the statuses that assert validity. */
const POSITIVE: Partial<Record<VerificationStatus, (kind: string) => string>> = {
  VALID: (kind) => `Valid ${kind}`,
  VERIFIED: (kind) => `Verified ${kind}`,
  PASS: (kind) => `${upperFirst(kind)} passes`,
  TRUST_ESTABLISHED: () => 'Trust established',
};

/** Texts about a decision that did not admit its action. */
interface NotAdmitted {
  /** Begins the headline of a proof that is not valid. */
  decision: string;
  valid: Pick<VerdictCopy, 'headline' | 'lead' | 'claims' | 'nonClaims'>;
  ended: Pick<VerdictCopy, 'lead' | 'claims'>;
  entry: string;
}

/** The headline never reads as approval: only the proof of the decision is valid, not the action. */
function notAdmittedCopy(
  { verification_status: status, can_assert_validity: asserts }: Relayed['verification'],
  { decision, valid, ended, entry }: NotAdmitted,
): VerdictCopy {
  if (asserts) {
    const stays = `That this stays true. The proof can be revoked or expire. ${ENDS}`;
    return { ...valid, mark: 'denied', nonClaims: [...valid.nonClaims, stays] };
  }
  if (status === 'REVOKED' || status === 'EXPIRED') {
    return {
      ...ended,
      mark: SHORT[status].mark,
      headline: `${decision}, and ${status.toLowerCase()}`,
      nonClaims: [ALLOWED, HOLDS],
    };
  }
  return {
    mark: 'open',
    headline: `${decision}, and not confirmed`,
    lead: `The log has an entry for ${entry}, but the verification system does not confirm it.`,
    claims: [],
    nonClaims: [ALLOWED, UNDECIDED],
  };
}

const denial = (kind: string): NotAdmitted => ({
  decision: 'Denied',
  valid: {
    headline: 'Denied',
    lead: `The action was denied. This is a valid ${kind} of the denial.`,
    claims: [
      'An action was denied, by the policy in force or by an approver.',
      'The log named below contains the signed proof of the denial.',
      'The verification system checked that proof and its place in the log.',
    ],
    nonClaims: [
      'That anything was allowed. No passport, certificate or trust follows from a denial.',
      'What the action was, who requested it, or why it was denied. None of this is public.',
    ],
  },
  ended: {
    lead: `The action was denied, and the ${kind} of the denial is no longer valid.`,
    claims: [`An action was denied. The ${kind} of the denial was issued and is no longer valid.`],
  },
  entry: 'this denial',
});

const requiredApproval = (kind: string): NotAdmitted => ({
  decision: 'Not admitted',
  valid: {
    headline: 'Not admitted: approval required',
    lead: `The action was not admitted, because it required an approval. This is a valid ${kind} of that decision.`,
    claims: [
      'The policy in force required an approval of an action, and did not admit it.',
      'The log named below contains the signed proof of this decision.',
      'The verification system checked that proof and its place in the log.',
    ],
    nonClaims: [
      'That anything was allowed. An approval causes a second decision, with its own proof.',
      'Which action was requested, by which agent, or whether it was approved. None of this is public.',
    ],
  },
  ended: {
    lead: `The action was not admitted, because it required an approval. The ${kind} of that decision is no longer valid.`,
    claims: [],
  },
  entry: 'a required approval',
});

const ALLOWED = 'That anything was allowed.';
const UNDECIDED =
  'That it is valid, or that it is not. It may not have been checked yet, or a check may have failed.';

const LATER = 'That this stays so. Look up the identifier again later.';

const UNRESOLVED: VerdictCopy = {
  mark: 'open',
  headline: 'Not resolved',
  lead: 'This service cannot say anything about this identifier.',
  advice: `${COPIED} You can also ask the sender for the identifier of the proof.`,
  claims: [],
  nonClaims: ['That it is valid, or that it is not.', 'That nothing has this identifier.'],
};

/** The same text for every reason: a holder must not learn whether the token was ever valid. */
const UNRESOLVABLE_TOKEN: VerdictCopy = {
  mark: 'open',
  headline: 'Not resolved',
  lead: 'This share link shows nothing.',
  advice:
    'The link may not exist, may be revoked or expired, or may lead to something that is not published. ' +
    'Check that you copied the whole link, or ask the sender.',
  claims: [],
  nonClaims: ['Which of these reasons applies.', 'Whether anything behind the link is valid.'],
};

const EACH = 'The verdict on each member. It is shown with the member.';

/** Copy for a package as a whole; `membersSection` shows the verdicts on its members. */
function packageCopy(status: VerificationStatus, members: number): VerdictCopy {
  const of = members === 1 ? 'of one proof' : `of ${count(members)} proofs`;
  const headline = POSITIVE[status]?.('package');
  if (headline !== undefined) {
    return {
      mark: 'good',
      headline,
      lead: `This is a package ${of}, and the verification system asserts trust in it as a whole.`,
      claims: [
        'Every proof in the package is of an admitted action.',
        'The verification system checked the proofs and their places in the log named below.',
        'The verification system asserts trust in the package as a whole.',
      ],
      nonClaims: [
        'That the actions were carried out, or with what result.',
        'That the package is complete. Its creator chose the members.',
        `That this stays true. The package is revoked or expires with any member. ${ENDS}`,
      ],
    };
  }
  if (status === 'REVOKED' || status === 'EXPIRED') {
    return endedCopy(status, 'package', {
      lead: `This package ${of} depends on something that ${HOW[status]}. Do not rely on it as a whole.`,
      claims: {
        REVOKED: 'Something that the package depends on was revoked. A revocation is final.',
        EXPIRED: 'Something that the package depends on has expired.',
      },
      nonClaims: [EACH, HOLDS],
    });
  }
  return {
    mark: 'open',
    headline: 'Not confirmed',
    lead: `The verification system does not confirm this package ${of} as a whole.`,
    claims: [],
    nonClaims: [UNDECIDED, EACH, LATER],
  };
}

export function count(n: number): string {
  return n.toLocaleString('en-US');
}

export function upperFirst(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
