import { concat, utf8 } from '../../protocol/bytes.js';
import { documentHash, hashHex, nobleSha256 } from '../../protocol/hash.js';
import { isBatchId } from '../../protocol/ids.js';
import type { AgentEnvelope, ExecuteRequest } from '../../protocol/schemas/admission.js';
import {
  BATCH_ITEMS_MAX,
  batchListSchema,
  batchSchema,
  type Batch,
  batchResultsSchema,
  type BatchResult,
} from '../../protocol/schemas/batch.js';
import { canonicalBody } from '../canonical.js';
import { SdkError, type Denial, type RequiredApproval, type ServiceProblem } from '../errors.js';
import { readAbout, readDocument, unexpected } from '../http/answers.js';
import type { HttpClient } from '../http/client.js';
import { openDeadline } from '../http/attempt.js';
import { type EngineOptions, invalidInput } from '../options.js';
import {
  approvalIn,
  denialIn,
  isAdmission,
  receiptSchema,
  type Admitted,
  type Receipt,
} from './admission.js';
import { openEngine } from './engine.js';
import { itemsOf } from './pages.js';

/** The body of a single admission, from `executeRequest` or `agentEnvelope`. */
export type BatchItem = ExecuteRequest | AgentEnvelope;

/** Counts over all batches of an input. The counts from `admitted` to `pending` add up to `accepted`. */
export interface BatchProgress {
  /** Items that are durable in the registry. */
  accepted: number;
  admitted: number;
  denied: number;
  approval_required: number;
  refused: number;
  invalid: number;
  pending: number;
  /** Items with the result of an earlier admission. */
  replayed: number;
}

/** Limits and progress of a batch admission. */
export interface BatchSettings {
  /** Called whenever a batch makes progress. */
  onProgress?: (progress: BatchProgress) => void;
  /** Maximum items of one batch; default and limit 10,000. */
  maxItems?: number | undefined;
}

const BYTES_MAX = 32 * 1024 * 1024;
/** Maximum concurrent batches. */
const IN_FLIGHT = 2;
/** More attempts than for a single item, because a nearly full queue rejects batches first. */
const BATCH_RETRY = { attempts: 30 };

/**
 * Admits any number of items with `POST /v1/batches`, and yields the outcomes in the order of the
 * input. Reads the input on demand, in batches, and never holds the whole input. Items are independent: a denied or
 * invalid item is a result like any other.
 *
 * The timeout of the options limits each request, and the time of a batch without progress. Throws
 * `SdkError` when sending or following a batch fails. Accepted items remain accepted: the same input
 * returns their first receipts again.
 */
export async function* admitBatchHttp(
  options: EngineOptions,
  items: Iterable<BatchItem> | AsyncIterable<BatchItem>,
  settings: BatchSettings = {},
): AsyncGenerator<BatchItemResult, void, undefined> {
  const { maxItems = BATCH_ITEMS_MAX } = settings;
  if (!Number.isInteger(maxItems) || maxItems < 1 || maxItems > BATCH_ITEMS_MAX) {
    const message = `maxItems must be an integer from 1 to ${String(BATCH_ITEMS_MAX)}`;
    throw new SdkError('invalid_input', message);
  }
  const stopping = new AbortController();
  const signals = [stopping.signal, ...(options.signal === undefined ? [] : [options.signal])];
  const stoppable = { ...options, signal: AbortSignal.any(signals) };
  const engine = openEngine({ ...stoppable, retry: { ...BATCH_RETRY, ...options.retry } });
  const onProgress = sumProgress(settings.onProgress);
  try {
    const chunks = chunksOf(items, maxItems);
    const admit = (chunk: Chunk) => admitChunk(engine, stoppable, chunk, onProgress);
    for await (const results of mapInOrder(chunks, admit, IN_FLIGHT)) yield* results;
  } finally {
    stopping.abort();
  }
}

async function admitChunk(
  engine: HttpClient,
  options: EngineOptions,
  { start, hashes, body }: Chunk,
  onProgress: (batch: Batch) => void,
): Promise<BatchItemResult[]> {
  const request = {
    method: 'POST',
    path: '/v1/batches',
    type: 'application/x-ndjson',
    body,
    idempotencyKey: documentHash(nobleSha256, hashes),
    expected: [202],
  } as const;
  const answer = await engine.read(request);
  const batch = readDocument(answer, batchSchema);
  const total = hashes.length;
  if (batch.counts.total !== total) {
    throw unexpected(answer, 'the batch and the request have different numbers of items');
  }
  onProgress(batch);
  await waitForBatch(engine, options, batch.batch_id, onProgress);
  return readBatchResults(engine, batch.batch_id, { start, hashes, total });
}

/**
 * Sums the counts of all batches of an input. Each update adds only the change of one batch, because an input may have
 * thousands.
 */
export function sumProgress(onProgress: BatchSettings['onProgress']): (batch: Batch) => void {
  const known = new Map<string, BatchProgress>();
  const sums: BatchProgress = {
    accepted: 0,
    admitted: 0,
    denied: 0,
    approval_required: 0,
    refused: 0,
    invalid: 0,
    pending: 0,
    replayed: 0,
  };
  return ({ batch_id: id, counts: { total: accepted, ...counts }, replayed }) => {
    const [before, now] = [known.get(id), { accepted, ...counts, replayed }];
    known.set(id, now);
    for (const name of Object.keys(sums) as (keyof BatchProgress)[]) {
      sums[name] += now[name] - (before?.[name] ?? 0);
    }
    onProgress?.({ ...sums });
  };
}

/** The part of an input that one batch carries. */
interface Chunk {
  /** Index of the batch's first item in the whole input. */
  start: number;
  /** SHA-256 of each item's canonical bytes: its `request_hash`. */
  hashes: string[];
  /** NDJSON with one canonical item per line. */
  body: Uint8Array;
}

const NEWLINE = utf8('\n');

/**
 * Splits the input into request bodies within the limits; only one body is in memory at a time. Equal inputs
 * give equal chunks, so repeating an input sends the existing batches again.
 */
async function* chunksOf(
  items: Iterable<object> | AsyncIterable<object>,
  maxItems: number,
): AsyncGenerator<Chunk, void, undefined> {
  let start = 0;
  let lines: Uint8Array[] = [];
  let hashes: string[] = [];
  let bytes = 0;
  const cut = (): Chunk => {
    const chunk = { start, hashes, body: concat(...lines) };
    start += hashes.length;
    [lines, hashes, bytes] = [[], [], 0];
    return chunk;
  };
  for await (const item of items) {
    const line = canonicalBody(item);
    if (line.length + 1 > BYTES_MAX) {
      const pointer = `/${String(start + hashes.length)}`;
      const message = `${pointer}: the item's line exceeds ${String(BYTES_MAX)} bytes, the limit of a batch`;
      throw invalidInput(pointer, message);
    }
    if (hashes.length === maxItems || bytes + line.length + 1 > BYTES_MAX) yield cut();
    lines.push(line, NEWLINE);
    hashes.push(hashHex(nobleSha256, line));
    bytes += line.length + 1;
  }
  if (hashes.length > 0) yield cut();
}

/**
 * Maps `inputs` concurrently, and yields the results in their order. Takes the next input only when
 * fewer than `inFlight` are being processed; the first failure ends the iteration.
 */
export async function* mapInOrder<In, Out>(
  inputs: AsyncIterable<In>,
  work: (input: In) => Out | Promise<Out>,
  inFlight: number,
): AsyncGenerator<Out, void, undefined> {
  const queue: Promise<Out>[] = [];
  for await (const input of inputs) {
    const result = Promise.resolve(work(input));
    // The consumer awaits the result later; until then a rejection must not count as unhandled.
    result.catch(() => undefined);
    queue.push(result);
    if (queue.length >= inFlight) yield await queue.shift()!;
  }
  for (const result of queue) yield await result;
}

/** The outcome of one item of an input. */
export type BatchItemResult = {
  /** Index in the whole input, from 0. */
  index: number;
  batch_id: string;
  /** The proof id of the item's admission; absent for an invalid item. */
  proof_id?: string;
  /** Whether the result is that of an earlier admission of the same item. */
  replayed: boolean;
} & (
  | { state: 'admitted'; receipt: Admitted<Receipt> }
  | { state: 'denied'; denial: Denial }
  | { state: 'approval_required'; approval: RequiredApproval }
  /** `refused`: accepted, but rejected before its signature. `invalid`: the item was never accepted. */
  | { state: 'refused' | 'invalid'; problem: ServiceProblem }
  /** The item, or its fault, was erased later. */
  | { state: 'erased'; problem: ServiceProblem }
);

const FIRST_POLL_MS = 100;
const MAX_POLL_MS = 2_000;
const PAGE_SIZE = 1_000;

/** `GET /v1/batches`: the tenant's batches, the newest first. */
export function listBatchesHttp(options: EngineOptions): AsyncGenerator<Batch, void, undefined> {
  return itemsOf(options, '/v1/batches', batchListSchema, (page) => page.batches);
}

/** `GET /v1/batches/{batch_id}`: the counts and the rate of a batch. */
export async function readBatchHttp(
  options: EngineOptions,
  input: { batch_id: string },
): Promise<Batch> {
  const batchId = requireBatchId(input.batch_id);
  const answer = await openEngine(options).read({ method: 'GET', path: `/v1/batches/${batchId}` });
  return readAbout(answer, batchSchema, 'batch', { batch_id: batchId });
}

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
  const batchId = requireBatchId(input.batch_id);
  const batch = await waitForBatch(engine, options, batchId, onProgress);
  const sent = { start: 0, hashes: null, total: batch.counts.total };
  return readBatchResults(engine, batchId, sent);
}

function requireBatchId(text: string): string {
  if (typeof text === 'string' && isBatchId(text)) return text;
  throw invalidInput('/batch_id', 'a batch id is batch_ and 32 lower-case hex characters');
}

/** Polls at growing intervals until the batch is complete. */
async function waitForBatch(
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
      const batch = readAbout(answer, batchSchema, 'batch', { batch_id: batchId });
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

/** The sent items, for comparison with the results. */
export interface SentItems {
  /** Index of the first item in the whole input. */
  start: number;
  /** The `request_hash` of each item; null when another process sent them. */
  hashes: readonly string[] | null;
  total: number;
}

/** Reads the results in pages, so that a retry repeats one page only. */
async function readBatchResults(
  engine: HttpClient,
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
    const answer = await engine.read({ method: 'GET', path, query });
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

/** A validated result; null when its state is not backed by the receipt of the sent item. */
function itemResult(
  result: BatchResult,
  { index, batchId, requestHash }: { index: number; batchId: string; requestHash: string | null },
): BatchItemResult | null {
  const { proof_id: proofId, receipt, problem } = result;
  const expected = { schema: receiptSchema, requestHash, proofId };
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
      const denial = denialIn(problem ?? {}, expected);
      return denial === null ? null : { ...about, state: 'denied', denial };
    }
    case 'approval_required': {
      const approval = approvalIn(result, expected);
      return approval === null ? null : { ...about, state: 'approval_required', approval };
    }
    case 'refused':
    case 'invalid':
    case 'erased':
      return problem === undefined ? null : { ...about, state: result.state, problem };
    case 'pending':
      return null;
  }
}
