import type { VerificationStatus } from '#protocol/status';
import { count, ENDS, HOLDS, POSITIVE, UNDECIDED, type VerdictCopy } from './copy.js';

const EACH = 'What the verdict on each member is. It stands with the member.';

/** A package is told as a whole; what is in it tells its own verdicts. */
export function tellPackage(status: VerificationStatus, members: number): VerdictCopy {
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
        says: [
          'Every proof in it is that of an action which was admitted.',
          'The verification system checked the proofs and their places in the log named below.',
          'It asserts trust in the package as a whole.',
        ],
        saysNot: [
          'That the actions were carried out, or how they went. Only that they were admitted.',
          'That nothing else belongs with them. What is in a package, its maker chose.',
          `That this will stay so. As soon as one member ends, the package does. ${ENDS}`,
        ],
      };
    case 'REVOKED':
      return {
        mark: 'revoked',
        headline: 'Revoked package',
        lead: `Of this package ${of}, something was revoked. Do not rely on it as a whole.`,
        says: ['Something that the package rests on is revoked. A revocation is final.'],
        saysNot: ['Why it was revoked. The reason is not public.', EACH, HOLDS],
      };
    case 'EXPIRED':
      return {
        mark: 'expired',
        headline: 'Expired package',
        lead: `Of this package ${of}, something has expired. Do not rely on it as a whole.`,
        says: ['The time of something that the package rests on has run out.'],
        saysNot: ['That anything was wrong with it while it lasted.', EACH, HOLDS],
      };
    case 'NOT_FOUND':
    case 'BACKEND_LOOKUP_REQUIRED':
      return {
        mark: 'open',
        headline: 'Not confirmed',
        lead: `The verification system does not confirm this package ${of} as a whole.`,
        says: [],
        saysNot: [UNDECIDED, EACH, 'That it will stay so. Ask again later.'],
      };
  }
}
