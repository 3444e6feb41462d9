import type { VerificationStatus } from '#protocol/status';
import { count, ENDS, HOLDS, POSITIVE, UNDECIDED, type VerdictCopy } from './copy.js';

const EACH = 'The verdict on each member. It is shown with the member.';

/** Copy for a package as a whole; `membersSection` shows the verdicts on its members. */
export function packageCopy(status: VerificationStatus, members: number): VerdictCopy {
  const of = members === 1 ? 'of one proof' : `of ${count(members)} proofs`;
  switch (status) {
    case 'VALID':
    case 'VERIFIED':
    case 'PASS':
    case 'TRUST_ESTABLISHED':
      return {
        mark: 'good',
        headline: POSITIVE[status]('package'),
        lead: `This is a package ${of}, and the verification system asserts it as a whole.`,
        claims: [
          'Every proof in it is of an admitted action.',
          'The verification system checked the proofs and their places in the log named below.',
          'It asserts trust in the package as a whole.',
        ],
        nonClaims: [
          'That the actions were carried out, or with what result. Only that they were admitted.',
          'That the package is complete. Its creator chose the members.',
          `That this stays true. When a member is revoked or expires, so does the package. ${ENDS}`,
        ],
      };
    case 'REVOKED':
      return {
        mark: 'revoked',
        headline: 'Revoked package',
        lead: `This package ${of} depends on something that was revoked. Do not rely on it as a whole.`,
        claims: ['Something that the package depends on was revoked. A revocation is final.'],
        nonClaims: ['Why it was revoked. The reason is not public.', EACH, HOLDS],
      };
    case 'EXPIRED':
      return {
        mark: 'expired',
        headline: 'Expired package',
        lead: `This package ${of} depends on something that has expired. Do not rely on it as a whole.`,
        claims: ['Something that the package depends on has expired.'],
        nonClaims: ['That anything was wrong with it before it expired.', EACH, HOLDS],
      };
    case 'NOT_FOUND':
    case 'BACKEND_LOOKUP_REQUIRED':
      return {
        mark: 'open',
        headline: 'Not confirmed',
        lead: `The verification system does not confirm this package ${of} as a whole.`,
        claims: [],
        nonClaims: [UNDECIDED, EACH, 'That this stays so. Look it up again later.'],
      };
  }
}
