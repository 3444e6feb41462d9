import { setTimeout as sleep } from 'node:timers/promises';
import { timeoutSignal } from '#runtime/concurrency';
import { treeSize } from '#sql/log/log';
import { startBatchLoad } from './batch-load.js';
import { aborted, urlOf } from './child.js';
import { withCleanup, type Cleanup } from './cleanup.js';
import { print } from './command.js';
import { batchBody, sendBatch } from './engine-api.js';
import { newRun } from './items.js';
import { startProgram, startPrograms } from './stack.js';
import { untilPublished } from './public-api.js';
import { openBenchRegistry, type BenchRegistry } from './registry.js';
import type { RunContext } from './scenario.js';

/** `steps` are the registry sizes whose costs `growth` compares; the last is `proofs`. */
export function sizesOf({ quick, proofs }: Pick<RunContext, 'quick' | 'proofs'>) {
  if (quick) return { proofs: 8_000, recentLookupLimit: 2_000, steps: [800, 8_000] };
  const steps: number[] = [];
  for (let step = 10_000; step < proofs; step *= 10) steps.push(step);
  return { proofs, recentLookupLimit: 100_000, steps: [...steps, proofs] };
}

export async function admittedIn({ owner }: BenchRegistry): Promise<number> {
  const [row] = await owner<{ admitted: number }[]>`
    select ((select count(*) from svc.log_entry where kind = 1) + (select count(*) from svc.intake_pending)
      + (select coalesce(sum(admissions), 0) from svc.chunk_pending))::int as admitted`;
  return row?.admitted ?? 0;
}

const BATCH = 5_000;
/** Limit on unpublished items while filling: less than one tenant's share of the engine's queue. */
const IN_FLIGHT = 20_000;
const DRAIN_MS = 120_000;

/** Opens the registry that growth, storage, lookup and memory share, and fills it if new. */
export async function openSharedRegistry(context: RunContext): Promise<BenchRegistry> {
  const { sharedDir, signal, cleanup } = context;
  return openFilledRegistry(sharedDir, { ...sizesOf(context), signal }, cleanup);
}

/**
 * Opens a registry and fills it with batches until `proofs` proofs are public. Continues an
 * interrupted run; a larger registry stays as it is. The queue is in Postgres, because registries
 * must not share a Redis.
 */
export async function openFilledRegistry(
  dir: string,
  options: { proofs: number; recentLookupLimit: number; signal: AbortSignal },
  cleanup: Cleanup,
): Promise<BenchRegistry> {
  const { proofs, recentLookupLimit, signal } = options;
  const settings = { RECENT_LOOKUP_LIMIT: String(recentLookupLimit) };
  const registry = await openBenchRegistry(dir, cleanup, settings);
  await withCleanup(async (inner) => {
    const stack = await startPrograms(registry, {}, inner);
    const admitted = await admittedIn(registry);
    const total = Math.max(0, proofs - admitted);
    print(`      ${String(admitted)} proofs, ${String(total)} to admit`);
    const load = startBatchLoad(stack, { items: BATCH, inFlight: IN_FLIGHT, total });
    try {
      await Promise.race([load.finished, aborted(signal)]);
    } finally {
      await load.stop();
    }
    const drained = AbortSignal.any([signal, timeoutSignal(DRAIN_MS)]);
    await untilPublished(stack, admitted + total, drained);
  });
  return registry;
}

async function sendItems(registry: BenchRegistry, engineUrl: string, count: number): Promise<void> {
  const source = { tenantId: registry.tenantId, run: newRun() };
  for (let first = 0; first < count; first += BATCH) {
    const body = batchBody(source, first, Math.min(BATCH, count - first));
    const answer = await sendBatch(engineUrl, registry, body);
    if (answer.batchId === null) {
      throw new Error(`the engine answered a batch with ${String(answer.status)} ${answer.code}`);
    }
  }
}

/** Starts an engine and a worker over a registry, but no verifier and no publisher. */
export async function startAppender(
  registry: BenchRegistry,
  signal: AbortSignal,
  cleanup: Cleanup,
) {
  const engine = startProgram('engine', registry, cleanup, { PUBLIC_URL: 'http://127.0.0.1' });
  const worker = startProgram('worker', registry, cleanup);
  const engineUrl = await urlOf(engine);
  await worker.ready;
  return {
    pids: [engine.pid, worker.pid],
    /** Admits `count` items and waits until they are committed. */
    append: async (count: number): Promise<void> => {
      const before = await treeSize(registry.owner);
      await sendItems(registry, engineUrl, count);
      while ((await treeSize(registry.owner)) < before + count) {
        signal.throwIfAborted();
        await sleep(20);
      }
    },
  };
}
