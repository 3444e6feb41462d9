import * as z from 'zod';
import { documentHash, nobleSha256 } from '../../protocol/hash.js';
import type { JsonValue } from '../../protocol/json.js';
import {
  admissionStatusSchema,
  type ExecuteReceipt,
  executeReceiptSchema,
  agentReceiptSchema,
  type AgentReceipt,
} from '../../protocol/schemas/admission.js';
import { SdkError, type Denial } from '../errors.js';
import { httpError, readDocument, unexpected } from '../http/answers.js';
import type { Answer } from '../http/attempt.js';

/** The receipt of either request type. */
export type Receipt = ExecuteReceipt | AgentReceipt;
export const receiptSchema = z.union([executeReceiptSchema, agentReceiptSchema]);
/** The receipt of an admission; the SDK returns no other receipt. */
export type Admitted<R extends Receipt> = R & { status: 'ADMITTED' };

export interface ExpectedReceipt<R extends Receipt> {
  schema: z.ZodType<R>;
  /** SHA-256 of the sent canonical body; null when another process sent it. */
  requestHash: string | null;
  proofId?: string;
}

/** Recomputes the hashes that bind a receipt to its request. */
function matches<R extends Receipt>(
  receipt: R,
  { requestHash, proofId }: ExpectedReceipt<R>,
): boolean {
  const { response_hash, ...rest } = receipt;
  return (
    receipt.request_hash === (requestHash ?? receipt.request_hash) &&
    receipt.registry_proof_id === (proofId ?? receipt.registry_proof_id) &&
    receipt.receipt_id.endsWith(`-${receipt.request_hash.slice(0, 16)}`) &&
    response_hash === documentHash(nobleSha256, rest as JsonValue)
  );
}

export function isAdmission<R extends Receipt>(
  receipt: R,
  expected: ExpectedReceipt<R>,
): receipt is Admitted<R> {
  return receipt.status === 'ADMITTED' && matches(receipt, expected);
}

/** The denial in a `policy_denied` problem; null without the receipt of this denial. */
export function denialIn<R extends Receipt>(
  problem: Readonly<Record<string, unknown>>,
  expected: ExpectedReceipt<R>,
): Denial | null {
  const receipt = expected.schema.safeParse(problem['receipt']).data;
  if (receipt?.status !== 'DENIED' || !matches(receipt, expected)) return null;
  const { reasons, sentences } = problem;
  return {
    receipt: receipt as Denial['receipt'],
    reasons: Array.isArray(reasons) ? reasons.filter(isText) : [],
    sentences: Object.fromEntries(
      Object.entries(sentences ?? {}).filter((one): one is [string, string] => isText(one[1])),
    ),
  };
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

export type AdmissionState<R extends Receipt> =
  { state: 'admitted'; receipt: Admitted<R> } | { state: 'pending'; proofId: string };

/**
 * The admission in a response. Only a 200 with the `ADMITTED` receipt of this request is one; throws
 * for a denial and for every other response.
 */
export function readAdmission<R extends Receipt>(
  answer: Answer,
  expected: ExpectedReceipt<R>,
): AdmissionState<R> {
  if (answer.status === 200) {
    const receipt = readDocument(answer, expected.schema);
    if (!isAdmission(receipt, expected)) throw mismatch(answer);
    return { state: 'admitted', receipt };
  }
  if (answer.status === 202) {
    const { proof_id: proofId } = readDocument(answer, admissionStatusSchema);
    // The SDK follows only this engine. Browsers hide the header from other origins.
    const location = answer.headers.get('location') ?? `/v1/admissions/${proofId}`;
    const isSame = proofId === (expected.proofId ?? proofId);
    if (!isSame || !location.endsWith(`/v1/admissions/${proofId}`)) throw mismatch(answer);
    return { state: 'pending', proofId };
  }
  const error = httpError(answer);
  const { problem, status } = error;
  if (problem?.code !== 'policy_denied') throw error;
  const denial = denialIn({ ...problem }, expected);
  if (denial === null || status !== 403) throw mismatch(answer);
  throw new SdkError('policy_denied', problem.detail, { status, problem, denial });
}

function mismatch(answer: Answer): SdkError {
  return unexpected(answer, 'the response does not belong to this request');
}
