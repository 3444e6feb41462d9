import { isBatchId } from '../../protocol/ids.js';
import {
  batchResultsSchema,
  batchSchema,
  type Batch,
  type BatchResult,
} from '../../protocol/schemas/batch.js';
import { SdkError, type Denial, type ServiceProblem } from '../errors.js';
import { readDocument, unexpected } from '../http/answers.js';
import type { HttpClient } from '../http/client.js';
import { openDeadline, withDeadline } from '../http/deadline.js';
import type { EngineOptions } from '../options.js';
import { openEngine } from './engine.js';
import {
  denialIn,
  isAdmission,
  receiptSchema,
  type Admitted,
  type ExpectedReceipt,
  type Receipt,
} from './receipt.js';

/** The outcome of one item of an input. */
export type BatchItemResult = {
  /** Index in the whole input, from 0. */
  index: number;
  batch_id: string;
  /** The proof of its admission; absent for an invalid item. */
  proof_id?: string;
  /** Whether an earlier admission of the same item is the answer. */
  replayed: boolean;
} & (
  | { state: 'admitted'; receipt: Admitted<Receipt> }
  | { state: 'denied'; denial: Denial }
  /** `refused`: accepted, but closed before its signature. `invalid`: the item was never accepted. */
  | { state: 'refused' | 'invalid'; problem: ServiceProblem }
  /** The service erased the item or its fault later. */
  | { state: 'erased'; problem: ServiceProblem }
);

const FIRST_POLL_MS = 100;
const MAX_POLL_MS = 2_000;
const PAGE_SIZE = 1_000;

/**
 * Waits until no item of an accepted batch is pending, and returns the outcomes in the order of the
 * items. The timeout of the options limits the time without progress.
 *
 * @param onProgress called whenever fewer items are pending than before
 */
export async function followBatchHttp(
  options: EngineOptions,
  input: { batch_id: string },
  onProgress: (batch: Batch) => void = () => undefined,
): Promise<BatchItemResult[]> {
  const engine = openEngine(options);
  if (!isBatchId(input.batch_id)) {
    throw new SdkError('invalid_input', 'a batch id is batch_ and 32 lower-case hex characters', {
      pointer: '/batch_id',
    });
  }
  const batch = await waitForBatch(engine, options, input.batch_id, onProgress);
  const sent = { start: 0, hashes: null, total: batch.counts.total };
  return readBatchResults(engine, options, input.batch_id, sent);
}

/** Polls at growing intervals until the batch is complete. */
export async function waitForBatch(
  engine: HttpClient,
  options: EngineOptions,
  batchId: string,
  onProgress: (batch: Batch) => void,
): Promise<Batch> {
  const request = { method: 'GET', path: `/v1/batches/${batchId}` } as const;
  let deadline = openDeadline(options);
  try {
    let pending = -1;
    for (let pause = FIRST_POLL_MS; ; pause = Math.min(MAX_POLL_MS, pause * 1.5)) {
      const answer = await engine.read(request, deadline);
      const batch = readDocument(answer, batchSchema);
      if (batch.batch_id !== batchId) {
        throw unexpected(answer, 'the response is about another batch');
      }
      if (batch.counts.pending !== pending) {
        pending = batch.counts.pending;
        deadline.close();
        deadline = openDeadline(options);
        onProgress(batch);
      }
      if (batch.state === 'completed') return batch;
      await deadline.sleep(pause);
    }
  } finally {
    deadline.close();
  }
}

/** The sent items, to compare the results with. */
export interface SentItems {
  /** Index of the first item in the whole input. */
  start: number;
  /** The `request_hash` of each item; null when another process sent them. */
  hashes: readonly string[] | null;
  total: number;
}

/** Reads the results in pages, so that a retry repeats one page only. */
export async function readBatchResults(
  engine: HttpClient,
  options: EngineOptions,
  batchId: string,
  { start, hashes, total }: SentItems,
): Promise<BatchItemResult[]> {
  const path = `/v1/batches/${batchId}/results`;
  const results: BatchItemResult[] = [];
  let cursor: string | null = null;
  do {
    const query: Record<string, string> = {
      limit: String(PAGE_SIZE),
      ...(cursor !== null && { cursor }),
    };
    const answer = await withDeadline(options, (deadline) =>
      engine.read({ method: 'GET', path, query }, deadline),
    );
    const page = readDocument(answer, batchResultsSchema);
    for (const result of page.results) {
      const at = results.length;
      const item = itemResult(result, {
        index: start + at,
        batchId,
        requestHash: hashes?.[at] ?? null,
      });
      const isNext = result.index === at && at < total;
      if (item === null || !isNext || page.batch_id !== batchId) {
        throw unexpected(answer, 'the results do not belong to this batch');
      }
      results.push(item);
    }
    cursor = page.next_cursor;
    const isComplete = results.length === total;
    if (cursor === null ? !isComplete : page.results.length === 0) {
      throw unexpected(answer, 'the results are incomplete');
    }
  } while (cursor !== null);
  return results;
}

/**
 * A validated result, or null: without the receipt of an admission of the sent item, no state means
 * an admission.
 */
function itemResult(
  result: BatchResult,
  { index, batchId, requestHash }: { index: number; batchId: string; requestHash: string | null },
): BatchItemResult | null {
  const { proof_id: proofId, receipt, problem } = result;
  const expected: ExpectedReceipt<Receipt> = {
    schema: receiptSchema,
    requestHash,
    ...(proofId !== undefined && { proofId }),
  };
  const about = {
    index,
    batch_id: batchId,
    ...(proofId !== undefined && { proof_id: proofId }),
    replayed: result.replayed === true,
  };
  switch (result.state) {
    case 'admitted':
      if (receipt === undefined || !isAdmission(receipt, expected)) return null;
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
