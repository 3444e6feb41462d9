import { concat, utf8 } from '../../protocol/bytes.js';
import { documentHash, hashHex, nobleSha256 } from '../../protocol/hash.js';
import type { AgentEnvelope, ExecuteRequest } from '../../protocol/schemas/admission.js';
import { BATCH_ITEMS_MAX, batchSchema, type Batch } from '../../protocol/schemas/batch.js';
import { canonicalBody } from '../canonical.js';
import { SdkError } from '../errors.js';
import { httpError, readDocument, unexpected } from '../http/answers.js';
import type { HttpClient } from '../http/client.js';
import { withDeadline } from '../http/deadline.js';
import type { EngineOptions } from '../options.js';
import { readBatchResults, waitForBatch, type BatchItemResult } from './batch-results.js';
import { openEngine } from './engine.js';

/** The body of a single admission, from `executeRequest` or `agentEnvelope`. */
export type BatchItem = ExecuteRequest | AgentEnvelope;

/** Counts over all batches of an input. The other five add up to `accepted`. */
export interface BatchProgress {
  /** Items that are durable in the registry. */
  accepted: number;
  admitted: number;
  denied: number;
  refused: number;
  invalid: number;
  pending: number;
}

/** Limits and progress of a batch admission. */
export interface BatchSettings {
  /** Called whenever a batch makes progress. */
  onProgress?: (progress: BatchProgress) => void;
  /** Maximum items of one batch; default and limit 10,000. */
  maxItems?: number;
  /** Maximum bytes of one batch; default and limit 32 MiB. */
  maxBytes?: number;
  /** Maximum concurrent batches; default 2. */
  inFlight?: number;
}

const BYTES_MAX = 32 * 1024 * 1024;
/** A full queue accepts a batch later than a single item. */
const BATCH_RETRY = { attempts: 30 };

/**
 * Admits any number of items with `POST /v1/batches`, and yields the outcomes in the order of the
 * input. Reads the input on demand, in batches, and never holds all of it. Items are independent: a
 * denied or invalid item is a result like any other.
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
  const limits = {
    items: limited('maxItems', settings.maxItems, BATCH_ITEMS_MAX),
    bytes: limited('maxBytes', settings.maxBytes, BYTES_MAX),
  };
  const inFlight = limited('inFlight', settings.inFlight ?? 2, 16);
  const stopping = new AbortController();
  const stop = (): void => stopping.abort(options.signal?.reason);
  options.signal?.addEventListener('abort', stop, { once: true });
  if (options.signal?.aborted === true) stop();
  const stoppable = { ...options, signal: stopping.signal };
  const engine = openEngine({ ...stoppable, retry: { ...BATCH_RETRY, ...options.retry } });
  const onProgress = sumProgress(settings.onProgress);
  try {
    const chunks = chunksOf(items, limits);
    const admit = (chunk: Chunk) => admitChunk(engine, stoppable, chunk, onProgress);
    for await (const results of mapInOrder(chunks, admit, inFlight)) yield* results;
  } finally {
    options.signal?.removeEventListener('abort', stop);
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
  } as const;
  const answer = await withDeadline(options, (deadline) => engine.send(request, deadline));
  if (answer.status !== 202) throw httpError(answer);
  const batch = readDocument(answer, batchSchema);
  const total = hashes.length;
  if (batch.counts.total !== total) {
    throw unexpected(answer, 'the batch has another number of items than the request');
  }
  onProgress(batch);
  await waitForBatch(engine, options, batch.batch_id, onProgress);
  return readBatchResults(engine, options, batch.batch_id, { start, hashes, total });
}

/** Adds up the counts of all batches. */
function sumProgress(onProgress: BatchSettings['onProgress']): (batch: Batch) => void {
  const known = new Map<string, Batch['counts']>();
  return (batch) => {
    known.set(batch.batch_id, batch.counts);
    const sum = (name: keyof Batch['counts']): number =>
      [...known.values()].reduce((total, counts) => total + counts[name], 0);
    onProgress?.({
      accepted: sum('total'),
      admitted: sum('admitted'),
      denied: sum('denied'),
      refused: sum('refused'),
      invalid: sum('invalid'),
      pending: sum('pending'),
    });
  };
}

function limited(name: string, value: number | undefined, most: number): number {
  const given = value ?? most;
  if (!Number.isInteger(given) || given < 1 || given > most) {
    throw new SdkError('invalid_input', `${name} must be an integer from 1 to ${String(most)}`);
  }
  return given;
}

/** The part of an input that one batch carries. */
export interface Chunk {
  /** Index of its first item in the whole input. */
  start: number;
  /** SHA-256 of each item's canonical bytes: its `request_hash`. */
  hashes: string[];
  /** NDJSON with one canonical item per line. */
  body: Uint8Array;
}

const NEWLINE = utf8('\n');

/**
 * Splits the input into request bodies within the limits; only one is in memory at a time. Equal inputs give
 * equal chunks: a repeated run sends the existing batches again.
 */
export async function* chunksOf(
  items: Iterable<object> | AsyncIterable<object>,
  limits: { items: number; bytes: number },
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
    if (line.length + 1 > limits.bytes) {
      const pointer = `/${String(start + hashes.length)}`;
      throw new SdkError('invalid_input', `${pointer}: is longer than a batch`, { pointer });
    }
    if (hashes.length === limits.items || bytes + line.length + 1 > limits.bytes) yield cut();
    lines.push(line, NEWLINE);
    hashes.push(hashHex(nobleSha256, line));
    bytes += line.length + 1;
  }
  if (hashes.length > 0) yield cut();
}

/**
 * Maps `inputs` concurrently, and yields the results in their order. Takes the next input only when
 * fewer than `inFlight` are in work; the first failure ends the iteration.
 */
export async function* mapInOrder<In, Out>(
  inputs: AsyncIterable<In>,
  work: (input: In) => Promise<Out>,
  inFlight: number,
): AsyncGenerator<Out, void, undefined> {
  const queue: Promise<Out>[] = [];
  for await (const input of inputs) {
    const result = work(input);
    // The consumer awaits the result later; until then a rejection must not count as unhandled.
    result.catch(() => undefined);
    queue.push(result);
    if (queue.length >= inFlight) yield await queue.shift()!;
  }
  for (const result of queue) yield await result;
}
