import { randomBytes } from 'node:crypto';
import { endedEarly, startBatchLoad, type BatchLoad } from './batch-load.js';
import { Checker, type Checked } from '../receipts/checker.js';
import type { Watched } from '../figures/cpu-shares.js';
import { outsideOf } from '../receipts/outside.js';
import { untilPublished } from '../service/publications.js';
import { measureWindow, type Window } from './window.js';
import { readiness } from '../service/readiness.js';
import type { BenchStack } from '../service/stack.js';

export interface BatchRunOptions {
  items: number;
  underWay: number;
  warmUpSeconds: number;
  seconds: number;
  redisPid: number;
  /** Milliseconds from a few receipts that are checked to the next. */
  checkEveryMs: number;
  profileDir?: string | undefined;
  signal: AbortSignal;
}

export interface BatchRun extends Window {
  checked: Checked;
  /** In all: batches, their items, and items of them that are not public when nothing moves any more. */
  batches: number;
  items: number;
  lost: number;
  waited: Readonly<Record<string, number>>;
}

/** The longest that the last batches may take to become public. */
const DRAIN_MS = 60_000;
const TIMEOUT_MS = 30_000;

/**
 * Keeps the whole service busy with batches of one tenant, from HTTP to public, and counts what became
 * public in a window after the warm-up. A checker looks at random receipts from the outside meanwhile.
 */
export async function runBatches(stack: BenchStack, options: BatchRunOptions): Promise<BatchRun> {
  const { publicUrl, registry } = stack;
  const { signal } = options;
  const source = { tenantId: registry.tenantId, run: randomBytes(6).toString('hex') };
  const before = (await readiness(publicUrl)).proofs;
  const checker = new Checker({
    outside: outsideOf(stack),
    source,
    everyMs: options.checkEveryMs,
    patienceMs: TIMEOUT_MS,
  });
  const { items, underWay, profileDir } = options;
  const load = startBatchLoad(
    { engineUrl: stack.engineUrl, publicUrl, apiKey: registry.apiKey, source, items, underWay },
    { profileDir, onSent: (batch) => checker.add(batch) },
  );
  try {
    const window = await Promise.race([
      measureWindow(stack.publicUrl, watchedOf(stack, load, options.redisPid), options),
      endedEarly(load),
    ]);
    await load.stop();
    const sent = load.sent.reduce((sum, batch) => sum + batch.items, 0);
    const drained = AbortSignal.any([signal, AbortSignal.timeout(DRAIN_MS)]);
    await untilPublished(publicUrl, before + sent, drained).catch(() => signal.throwIfAborted());
    const lost = before + sent - (await readiness(publicUrl)).proofs;
    const checked = await checker.stop();
    return {
      ...window,
      checked,
      batches: load.sent.length,
      items: sent,
      lost,
      waited: load.waited,
    };
  } finally {
    await load.stop().catch(() => undefined);
    await checker.stop();
  }
}

function watchedOf(stack: BenchStack, load: BatchLoad, redisPid: number): Watched {
  return {
    engine: [stack.engine.pid],
    workers: stack.workers.map(({ pid }) => pid),
    verifier: [stack.verifier.pid],
    publisher: [stack.publisher.pid],
    facade: [stack.facade.pid],
    Postgres: [stack.registry.postgresPid],
    Redis: [redisPid],
    client: [load.pid],
    checker: [process.pid],
  };
}
