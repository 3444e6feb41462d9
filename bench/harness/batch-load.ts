import { setTimeout as sleep } from 'node:timers/promises';
import { timeoutSignal } from '#runtime/concurrency';
import { outsiderOf, startReceiptChecker } from '../receipts/receipt-checker.js';
import type { BatchClientMessage, BatchClientTask, SentBatch } from './batch-client.js';
import { startChild } from './child.js';
import { startCpu, type Watched } from './cpu.js';
import { type ItemSource, newRun } from './items.js';
import { nextPublication, published, type Service, untilPublished } from './public-api.js';
import type { BenchStack } from './stack.js';
import { sumOf } from './statistics.js';

/** Starts a process in which a tenant sends batches as fast as they are published. */
export function startBatchLoad(
  { engineUrl, publicUrl, registry }: BenchStack,
  task: Pick<BatchClientTask, 'items' | 'inFlight' | 'total'> &
    Partial<Omit<ItemSource, 'tenantId'>>,
  onSent?: (batch: SentBatch) => void,
) {
  const sent: SentBatch[] = [];
  const retried: Record<string, number> = {};
  const { apiKey, tenantId } = registry;
  const { run = newRun(), agents, items, inFlight, total } = task;
  const client = startChild({
    module: 'bench/harness/batch-client',
    task: {
      engineUrl,
      publicUrl,
      apiKey,
      source: { tenantId, run, agents },
      items,
      inFlight,
      total,
    },
    onMessage: (received) => {
      const message = received as BatchClientMessage;
      if ('sent' in message) {
        sent.push(message.sent);
        onSent?.(message.sent);
      } else retried[message.retried] = (retried[message.retried] ?? 0) + 1;
    },
  });
  /** Rejects when the client exits before `stop`. */
  const failed = client.finished.then((): never => {
    throw new Error('the client that sends the batches exited too early');
  });
  failed.catch(() => undefined);
  return {
    pid: client.pid,
    sent,
    retried,
    failed,
    /** Resolves when a client with a `total` has sent that many items. */
    finished: client.finished,
    /** Stops sending; accepted items are still published. */
    stop: async (): Promise<void> => {
      await client.stop();
      await client.finished;
    },
  };
}

interface BatchRunOptions extends Pick<ItemSource, 'agents'> {
  items: number;
  inFlight: number;
  warmUpSeconds: number;
  seconds: number;
  checkEveryMs: number;
  signal: AbortSignal;
}

export type BatchRun = Awaited<ReturnType<typeof runBatches>>;

export const rateOf = ({ proofs, seconds }: Pick<BatchRun, 'proofs' | 'seconds'>): number =>
  proofs / seconds;

/** @throws Error when an item was lost or a receipt was wrong, which invalidates the run */
export function requireCorrect({ lost, checked: { wrong } }: BatchRun): void {
  if (lost > 0 || wrong.length > 0) {
    throw new Error(`${String(lost)} items were lost; ${wrong.join('; ')}`);
  }
}

const DRAIN_MS = 60_000;
const RECEIPT_PUBLIC_WITHIN_MS = 30_000;

/**
 * Saturates the whole service, from HTTP to publication, with one tenant's batches, and counts the
 * proofs published after the warm-up. Meanwhile checks random receipts as an outside client.
 */
export async function runBatches(stack: BenchStack, options: BatchRunOptions) {
  const { registry } = stack;
  const { agents, items, inFlight, signal } = options;
  const source = { tenantId: registry.tenantId, run: newRun(), agents };
  const before = await published(stack);
  const checker = startReceiptChecker(outsiderOf(stack), source, {
    everyMs: options.checkEveryMs,
    publicWithinMs: RECEIPT_PUBLIC_WITHIN_MS,
  });
  const load = startBatchLoad(stack, { run: source.run, agents, items, inFlight }, (batch) =>
    checker.add(batch),
  );
  try {
    const watched = { ...stack.watched, client: load.pid, checker: process.pid };
    const measuring = measurePublished(stack, watched, options);
    measuring.catch(() => undefined);
    const measured = await Promise.race([measuring, load.failed]);
    await load.stop();
    const sent = sumOf(load.sent, (batch) => batch.items);
    const drained = AbortSignal.any([signal, timeoutSignal(DRAIN_MS)]);
    const expected = before.proofs + sent;
    await untilPublished(stack, expected, drained).catch(() => signal.throwIfAborted());
    // The counts cover the whole run: batches, their items, and items that were never published.
    const lost = expected - (await published(stack)).proofs;
    const { retried } = load;
    const checked = await checker.stop();
    return { ...measured, checked, batches: load.sent.length, items: sent, lost, retried };
  } finally {
    // Ignores the error of the load, which `Promise.race` has already thrown.
    await load.stop().catch(() => undefined);
    await checker.stop();
  }
}

/** Measures from one publication to another: a partial publication would distort the rate. */
async function measurePublished(
  service: Service,
  watched: Watched,
  { warmUpSeconds, seconds, signal }: Pick<BatchRunOptions, 'warmUpSeconds' | 'seconds' | 'signal'>,
) {
  const first = await nextPublication(service, signal);
  await sleep(warmUpSeconds * 1000, undefined, { signal });
  const from = await nextPublication(service, signal, first);
  const cpuSince = startCpu(watched);
  await sleep(seconds * 1000, undefined, { signal });
  const to = await nextPublication(service, signal, from);
  const proofs = to.proofs - from.proofs;
  return { proofs, seconds: (to.at - from.at) / 1000, cpu: cpuSince(proofs) };
}
