import { isBatchId } from '../../protocol/ids.js';
import { batchResultsSchema, batchSchema, type Batch } from '../../protocol/schemas/batch.js';
import { SdkError } from '../errors.js';
import { unexpected, readDocument } from '../http/documents.js';
import { openDeadline, withDeadline } from '../http/deadline.js';
import type { EngineOptions } from '../options.js';
import { itemResult, type BatchItemResult } from './batch-documents.js';
import { openEngine, type Engine } from './engine.js';

const FIRST_REST_MS = 100;
const LONGEST_REST_MS = 2_000;
const PAGE = 1_000;

/**
 * Waits until all items of a batch that was accepted are settled, and returns what became of them,
 * in their order. The time of the options is how long it may stand still.
 *
 * @param onProgress told whenever the batch is found to be further than before
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
  const batch = await completed(engine, options, input.batch_id, onProgress);
  const sent = { start: 0, hashes: null, total: batch.counts.total };
  return batchResults(engine, options, input.batch_id, sent);
}

/** Asks, less and less often, until nothing of the batch is pending. */
export async function completed(
  engine: Engine,
  options: EngineOptions,
  batchId: string,
  onProgress: (batch: Batch) => void,
): Promise<Batch> {
  let deadline = openDeadline(options);
  try {
    let pending = -1;
    for (let rest = FIRST_REST_MS; ; rest = Math.min(LONGEST_REST_MS, rest * 1.5)) {
      const request = { method: 'GET', path: `/v1/batches/${batchId}` } as const;
      const answer = await engine.read(request, deadline);
      const batch = readDocument(answer, batchSchema);
      if (batch.batch_id !== batchId) throw unexpected(answer, 'the answer is about another batch');
      if (batch.counts.pending !== pending) {
        pending = batch.counts.pending;
        deadline.close();
        deadline = openDeadline(options);
        onProgress(batch);
      }
      if (batch.state === 'completed') return batch;
      await deadline.sleep(rest);
    }
  } finally {
    deadline.close();
  }
}

/** What is known of the items of a batch, for holding its results against. */
export interface SentItems {
  start: number;
  /** `request_hash` of each; null when somebody else sent them. */
  hashes: readonly string[] | null;
  total: number;
}

/** Page after page, so that one that gets lost is asked for again alone. */
export async function batchResults(
  engine: Engine,
  options: EngineOptions,
  batchId: string,
  { start, hashes, total }: SentItems,
): Promise<BatchItemResult[]> {
  const results: BatchItemResult[] = [];
  let cursor: string | null = null;
  do {
    const query: Record<string, string> = {
      limit: String(PAGE),
      ...(cursor !== null && { cursor }),
    };
    const path = `/v1/batches/${batchId}/results`;
    const page = await withDeadline(options, async (deadline) => {
      const answer = await engine.read({ method: 'GET', path, query }, deadline);
      const document = readDocument(answer, batchResultsSchema);
      for (const result of document.results) {
        const at = results.length;
        const requestHash = hashes?.[at] ?? null;
        const item = itemResult(result, { start, batchId, requestHash });
        const isNext = result.index === at && at < total;
        if (item === null || !isNext || document.batch_id !== batchId) {
          throw unexpected(answer, 'the results are not those of this batch');
        }
        results.push(item);
      }
      if (document.next_cursor !== null && document.results.length === 0) {
        throw unexpected(answer, 'the results do not go on');
      }
      if (document.next_cursor === null && results.length !== total) {
        throw unexpected(answer, 'the results are not complete');
      }
      return document;
    });
    cursor = page.next_cursor;
  } while (cursor !== null);
  return results;
}
