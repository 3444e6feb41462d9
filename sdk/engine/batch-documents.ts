import type { BatchResult } from '../../protocol/schemas/batch.js';
import type { Denial, ServiceProblem } from '../errors.js';
import {
  denialIn,
  fits,
  isAdmitted,
  receiptSchema,
  type Admitted,
  type Expected,
  type Receipt,
} from './receipt.js';

/** What became of one item of an input. */
export type BatchItemResult = {
  /** Its place in the whole input, from 0. */
  index: number;
  batch_id: string;
  /** Proof id of the admission; absent for an invalid item. */
  proof_id?: string;
  /** An earlier admission answers it, in this input or before. */
  replayed: boolean;
} & (
  | { state: 'admitted'; receipt: Admitted<Receipt> }
  | { state: 'denied'; denial: Denial }
  /** Accepted, and closed before it was signed; or never accepted: the item itself is at fault. */
  | { state: 'refused' | 'invalid'; problem: ServiceProblem }
  /** What was asked and answered has been erased since, or what was wrong with it. */
  | { state: 'erased'; problem: ServiceProblem }
);

/**
 * A result as the caller gets it; null when it does not say what it claims: no state is taken for an
 * admission without the receipt of one, with the hash of what was sent.
 */
export function itemResult(
  result: BatchResult,
  { start, batchId, requestHash }: { start: number; batchId: string; requestHash: string | null },
): BatchItemResult | null {
  const { proof_id: proofId, receipt, problem } = result;
  const expected: Expected<Receipt> = {
    schema: receiptSchema,
    requestHash,
    ...(proofId !== undefined && { proofId }),
  };
  const about = {
    index: start + result.index,
    batch_id: batchId,
    ...(proofId !== undefined && { proof_id: proofId }),
    replayed: result.replayed === true,
  };
  switch (result.state) {
    case 'admitted':
      if (receipt === undefined || !isAdmitted(receipt) || !fits(receipt, expected)) return null;
      return { ...about, state: 'admitted', receipt };
    case 'denied': {
      const denial = denialIn({ ...problem }, expected);
      return denial === null ? null : { ...about, state: 'denied', denial };
    }
    case 'refused':
    case 'invalid':
    case 'erased':
      return problem === undefined ? null : { ...about, state: result.state, problem };
    case 'pending':
      return null;
  }
}
