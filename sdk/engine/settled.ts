import { admissionStatusSchema } from '../../protocol/schemas/admission-status.js';
import { SdkError } from '../errors.js';
import type { Answer } from '../http/attempt.js';
import { readDocument, unexpected } from '../http/documents.js';
import { refusal } from '../http/refusal.js';
import {
  denialIn,
  fits,
  isAdmitted,
  type Admitted,
  type Expected,
  type Receipt,
} from './receipt.js';

export type Settled<R extends Receipt> =
  { state: 'admitted'; receipt: Admitted<R> } | { state: 'pending'; proofId: string };

/**
 * What an answer of an admission lane means. Only a 200 with an `ADMITTED` receipt for this very
 * request is an admission; a denial and every other answer are thrown.
 */
export function settledBy<R extends Receipt>(answer: Answer, expected: Expected<R>): Settled<R> {
  switch (answer.status) {
    case 200: {
      const receipt = readDocument(answer, expected.schema);
      if (!isAdmitted(receipt)) throw unexpected(answer, 'a 200 with a receipt that denies');
      if (!fits(receipt, expected)) throw notOurs(answer);
      return { state: 'admitted', receipt };
    }
    case 202: {
      const { proof_id: proofId } = readDocument(answer, admissionStatusSchema);
      requireLocation(answer, proofId);
      if (proofId !== (expected.proofId ?? proofId)) throw notOurs(answer);
      return { state: 'pending', proofId };
    }
    default: {
      const refused = refusal(answer);
      throw refused.problem?.code === 'policy_denied' ? denied(answer, refused, expected) : refused;
    }
  }
}

/** A denial without its receipt is no admission either, but no proof of anything. */
function denied<R extends Receipt>(
  answer: Answer,
  { problem, status }: SdkError,
  expected: Expected<R>,
): SdkError {
  const denial = denialIn({ ...problem }, expected);
  if (denial === null || problem === undefined || status !== 403) return notOurs(answer);
  return new SdkError('policy_denied', problem.detail, { status, problem, denial });
}

/** Followed is only ever this engine, wherever a `Location` leads; one that leads elsewhere is refused. */
function requireLocation(answer: Answer, proofId: string): void {
  const location = answer.headers.get('location');
  // A browser does not show it to a page of another origin.
  if (location !== null && !location.endsWith(`/v1/admissions/${proofId}`)) throw notOurs(answer);
}

function notOurs(answer: Answer): SdkError {
  return unexpected(answer, 'the answer is not one to this request');
}
