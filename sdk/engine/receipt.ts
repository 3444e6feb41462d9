import * as z from 'zod';
import { documentHash, nobleSha256 } from '../../protocol/hash.js';
import { isProofId } from '../../protocol/ids.js';
import type { JsonValue } from '../../protocol/json.js';
import { agentReceiptSchema, type AgentReceipt } from '../../protocol/schemas/agent.js';
import { executeReceiptSchema, type ExecuteReceipt } from '../../protocol/schemas/execute.js';
import { SdkError, type Denial } from '../errors.js';

/** What either lane answers with. */
export type Receipt = ExecuteReceipt | AgentReceipt;
export const receiptSchema = z.union([executeReceiptSchema, agentReceiptSchema]);
/** A receipt that says yes: no other is ever returned. */
export type Admitted<R extends Receipt> = R & { status: 'ADMITTED' };

/** What a receipt must be, to be the one for what was asked. */
export interface Expected<R extends Receipt> {
  schema: z.ZodType<R>;
  /** SHA-256 of the canonical body that was sent; null when somebody else sent it. */
  requestHash: string | null;
  /** Where it is known already. */
  proofId?: string;
}

/** The hashes of a receipt bind it to the request; they are compared, never believed. */
export function fits<R extends Receipt>(
  receipt: R,
  { requestHash, proofId }: Expected<R>,
): boolean {
  const { response_hash, ...rest } = receipt;
  return (
    receipt.request_hash === (requestHash ?? receipt.request_hash) &&
    receipt.registry_proof_id === (proofId ?? receipt.registry_proof_id) &&
    receipt.receipt_id.endsWith(`-${receipt.request_hash.slice(0, 16)}`) &&
    response_hash === documentHash(nobleSha256, rest as JsonValue)
  );
}

export function isAdmitted<R extends Receipt>(receipt: R): receipt is Admitted<R> {
  return receipt.status === 'ADMITTED';
}

/** The denial in a problem document of code `policy_denied`; null when its receipt is not one for it. */
export function denialIn<R extends Receipt>(
  problem: Readonly<Record<string, unknown>>,
  expected: Expected<R>,
): Denial | null {
  const receipt = expected.schema.safeParse(problem['receipt']).data;
  if (receipt?.status !== 'DENIED' || !fits(receipt, expected)) return null;
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

/** A proof id, or `invalid_input`: nothing else ever becomes part of a path. */
export function requireProofId(text: string): string {
  if (!isProofId(text)) {
    throw new SdkError('invalid_input', 'a proof id is a UUIDv7 as 32 lower-case hex characters', {
      pointer: '/proof_id',
    });
  }
  return text;
}
