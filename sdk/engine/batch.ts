import { documentHash, nobleSha256 } from '../../protocol/hash.js';
import type { AgentEnvelope } from '../../protocol/schemas/agent.js';
import { BATCH_ITEMS_MAX, batchSchema, type Batch } from '../../protocol/schemas/batch.js';
import type { ExecuteRequest } from '../../protocol/schemas/execute.js';
import { SdkError } from '../errors.js';
import { readDocument, unexpected } from '../http/documents.js';
import { withDeadline } from '../http/deadline.js';
import { refusal } from '../http/refusal.js';
import type { EngineOptions } from '../options.js';
import { chunksOf, type Chunk } from './batch-chunks.js';
import type { BatchItemResult } from './batch-documents.js';
import { batchResults, completed } from './batch-follow.js';
import { inOrder } from './in-order.js';
import { openEngine, type Engine } from './engine.js';

/** What would be sent alone; `executeRequest` and `agentEnvelope` make them. */
export type BatchItem = ExecuteRequest | AgentEnvelope;

/** How far all batches of an input are together; the last six add up to `accepted`. */
export interface BatchProgress {
  /** Items that are durable in the registry. */
  accepted: number;
  admitted: number;
  denied: number;
  refused: number;
  invalid: number;
  pending: number;
}

/** How a batch admission is cut and followed. */
export interface BatchSettings {
  /** Told whenever one of the batches is found to be further than before. */
  onProgress?: (progress: BatchProgress) => void;
  /** Items of one batch at most; 10,000, which is also the most that is taken. */
  maxItems?: number;
  /** Bytes of one batch at most; 32 MiB, likewise. */
  maxBytes?: number;
  /** Batches under way at a time; 2. */
  inFlight?: number;
}

const BYTES_MAX = 32 * 1024 * 1024;
/** A queue that is full takes a while to empty: a batch waits for its turn longer than one item. */
const PATIENCE = { attempts: 30 };

/**
 * Admits any number of items over `POST /v1/batches`, and yields what became of each, in the order
 * of the input. The input is taken as it is needed, cut into batches, and never held whole. Items
 * are independent: one that is denied or at fault is a result like any other.
 *
 * The time of the options is that of each request, and how long a batch may stand still. Throws
 * `SdkError` when a batch could not be sent or followed; what was accepted stays accepted, and the
 * same input again answers for it with the first receipts.
 */
export async function* admitBatchHttp(
  options: EngineOptions,
  items: Iterable<BatchItem> | AsyncIterable<BatchItem>,
  settings: BatchSettings = {},
): AsyncGenerator<BatchItemResult, void, undefined> {
  const limits = {
    items: within('maxItems', settings.maxItems, BATCH_ITEMS_MAX),
    bytes: within('maxBytes', settings.maxBytes, BYTES_MAX),
  };
  const inFlight = within('inFlight', settings.inFlight ?? 2, 16);
  const stopping = new AbortController();
  const stop = (): void => stopping.abort(options.signal?.reason);
  options.signal?.addEventListener('abort', stop, { once: true });
  if (options.signal?.aborted === true) stop();
  const stoppable = { ...options, signal: stopping.signal };
  const engine = openEngine({ ...stoppable, retry: { ...PATIENCE, ...options.retry } });
  const tell = progressOf(settings.onProgress);
  try {
    const admit = (chunk: Chunk): Promise<BatchItemResult[]> =>
      admitted(engine, stoppable, chunk, tell);
    for await (const results of inOrder(chunksOf(items, limits), admit, inFlight)) yield* results;
  } finally {
    options.signal?.removeEventListener('abort', stop);
    stopping.abort();
  }
}

async function admitted(
  engine: Engine,
  options: EngineOptions,
  { start, hashes, body }: Chunk,
  tell: (batch: Batch) => void,
): Promise<BatchItemResult[]> {
  const batch = await withDeadline(options, async (deadline) => {
    const request = {
      method: 'POST',
      path: '/v1/batches',
      type: 'application/x-ndjson',
      body,
      idempotencyKey: documentHash(nobleSha256, hashes),
    } as const;
    const answer = await engine.ask(request, deadline);
    if (answer.status !== 202) throw refusal(answer);
    const accepted = readDocument(answer, batchSchema);
    if (accepted.counts.total !== hashes.length) {
      throw unexpected(answer, 'the batch has another number of items than were sent');
    }
    return accepted;
  });
  tell(batch);
  await completed(engine, options, batch.batch_id, tell);
  const sent = { start, hashes, total: hashes.length };
  return batchResults(engine, options, batch.batch_id, sent);
}

/** Batches are told one by one, as often as each moves; the caller hears their sum. */
function progressOf(onProgress: BatchSettings['onProgress']): (batch: Batch) => void {
  const known = new Map<string, Batch['counts']>();
  return (batch) => {
    known.set(batch.batch_id, batch.counts);
    const states = { admitted: 0, denied: 0, refused: 0, invalid: 0, pending: 0 };
    let accepted = 0;
    for (const counts of known.values()) {
      accepted += counts.total;
      for (const state of Object.keys(states) as (keyof typeof states)[]) {
        states[state] += counts[state];
      }
    }
    onProgress?.({ accepted, ...states });
  };
}

function within(name: string, value: number | undefined, most: number): number {
  const given = value ?? most;
  if (!Number.isInteger(given) || given < 1 || given > most) {
    throw new SdkError('invalid_input', `${name} is a whole number from 1 to ${String(most)}`);
  }
  return given;
}
