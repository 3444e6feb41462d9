import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { treeSize } from '#sql/log/log';
import { startChild, urlOf } from '../harness/child.js';
import { withCleanup } from '../harness/command.js';
import { sendItems } from '../harness/fill.js';
import { startProgram } from '../harness/programs.js';
import { openBenchRegistry, type BenchRegistry } from '../harness/registry.js';
import { resultOf, type Result, type Scenario, type RunContext } from '../harness/scenario.js';
import { UNLIMITED } from '../harness/stack.js';
import { median, spread, sumOf, whole } from '../harness/statistics.js';
import type { LockTimes, TimedWorkerTask } from '../scaling/timed-worker.js';

/** Throughput with 1, 2 and 4 workers, and the limit that the append lock sets. */
export const scaling: Scenario = { name: 'scaling', run };

const WORKERS = [1, 2, 4];

function run({ quick, dir, redisUrl, signal }: RunContext): Promise<Result[]> {
  return withCleanup(async (cleanup) => {
    const registry = await openBenchRegistry(dir);
    cleanup.push(() => registry.close());
    const options = { recentLookupLimit: 1, redisUrl, env: UNLIMITED };
    const engine = startProgram('engine', registry, options);
    cleanup.push(() => engine.stop());
    const engineUrl = await urlOf(engine);
    const proofs = quick ? 3_000 : 20_000;
    const sendBacklog = () => sendItems(registry, engineUrl, proofs);
    const scaled: Scaled[] = [];
    for (const workers of WORKERS) {
      scaled.push(
        await commitBacklog(registry, { workers, proofs, redisUrl, sendBacklog, signal }),
      );
    }
    return scalingResults(scaled, availableParallelism());
  });
}

export interface Scaled {
  workers: number;
  proofs: number;
  /** Proofs per second from the first tenth to the last, without start-up. */
  rate: number;
  /** Until the last proof. */
  seconds: number;
  /** How long each transaction of any worker held the append lock, in milliseconds. */
  heldMs: readonly number[];
}

const FROM = 0.1;
const TO = 0.9;
const POLL_MS = 10;

/** Starts workers, then the backlog, then lets the workers commit it. */
function commitBacklog(
  registry: BenchRegistry,
  options: {
    workers: number;
    proofs: number;
    redisUrl: string;
    sendBacklog: () => Promise<void>;
    signal: AbortSignal;
  },
): Promise<Scaled> {
  const { workers, proofs, redisUrl, sendBacklog, signal } = options;
  const { owner } = registry;
  const task: TimedWorkerTask = {
    databaseUrl: registry.roleUrl('svc_worker'),
    redisUrl,
    aepKeyFile: registry.keyFiles.aep,
  };
  return withCleanup(async (cleanup) => {
    const children = Array.from({ length: workers }, () => {
      const child = startChild({ module: 'bench/scaling/timed-worker', task });
      cleanup.push(() => child.stop());
      return child;
    });
    const exited = Promise.race(children.map((child) => child.finished)).then(() => {
      throw new Error('a worker exited before the backlog was committed');
    });
    exited.catch(() => undefined);
    await Promise.all(children.map((child) => child.ready));
    const before = await treeSize(owner);
    await sendBacklog();
    const began = performance.now();
    // The only reply is the lock times, at exit.
    const lockTimes = children.map((child) => child.request<LockTimes>({ start: true }));
    const reported = Promise.all(lockTimes);
    reported.catch(() => undefined);
    const reached = async (share: number): Promise<{ at: number; size: number }> => {
      for (;;) {
        const size = await treeSize(owner);
        if (size >= before + proofs * share) return { at: performance.now(), size };
        signal.throwIfAborted();
        await Promise.race([sleep(POLL_MS), exited]);
      }
    };
    const from = await reached(FROM);
    const to = await reached(TO);
    const seconds = ((await reached(1)).at - began) / 1000;
    await Promise.all(children.map((child) => child.stop()));
    const heldMs = (await reported).flatMap((one) => one.heldMs);
    if (heldMs.length === 0) throw new Error('no transaction held the append lock');
    const rate = ((to.size - from.size) / (to.at - from.at)) * 1000;
    return { workers, proofs, rate, seconds, heldMs };
  });
}

/** @param scaled fewest workers first */
export function scalingResults(scaled: readonly Scaled[], cores: number): Result[] {
  const [single] = scaled;
  if (single === undefined) throw new Error('nothing was measured');
  return [
    ...scaled.map((one) =>
      resultOf({
        name: `worker scaling: ${String(one.workers)} ${one.workers === 1 ? 'worker' : 'workers'}`,
        value: one.rate,
        unit: 'proofs/s',
        ...(one !== single && { against: { what: 'one worker', value: single.rate } }),
        note: `${lockNote(one)}; ${whole(one.proofs)} proofs from batches, ${String(cores)} cores for everything`,
      }),
    ),
    resultOf({
      name: 'append lock: projected ceiling',
      value: ceiling(single),
      unit: 'proofs/s',
      against: { what: 'the throughput of one worker', value: single.rate },
      note: "by the median hold of one worker's transactions: the limit with a core for each worker, since only one appends at a time",
    }),
  ];
}

/** Proofs per second if the lock were always held, each time as long as the median hold. */
const ceiling = ({ proofs, heldMs }: Scaled): number =>
  (proofs / heldMs.length / median(heldMs)) * 1000;

function lockNote({ proofs, heldMs, seconds }: Scaled): string {
  const all = sumOf(heldMs, (ms) => ms);
  const share = (100 * all) / 1000 / seconds;
  return (
    `append lock held ${share.toFixed(0)} % of the time, ${((1000 * all) / proofs).toFixed(0)} µs per proof; ` +
    `median hold ${median(heldMs).toFixed(1)} ms (${spread(heldMs, 1)}), ${(proofs / heldMs.length).toFixed(0)} proofs each`
  );
}
