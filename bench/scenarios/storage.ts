import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { withCleanup } from '../harness/cleanup.js';
import { openSharedRegistry, startAppender } from '../harness/fill.js';
import { startProgram } from '../harness/stack.js';
import { databaseSize, proofsAmong, type BenchRegistry } from '../harness/registry.js';
import { resultOf, type Result, type Scenario, type RunContext } from '../harness/scenario.js';
import { liveBytes, publishedLocation } from '../harness/snapshot.js';
import { whole } from '../harness/statistics.js';

/** Bytes per proof in Postgres, and bytes written per byte published. */
export const storage: Scenario = { name: 'storage', run };

/** Proofs per second, proofs per publish cycle (one in 1.5 s), and cycles: enough for a full entry bundle. */
const TRICKLE = { perSecond: 5, each: 8, cycles: 40 };

async function run(context: RunContext): Promise<Result[]> {
  const { quick, signal, cleanup } = context;
  const registry = await openSharedRegistry(context);
  const { bytes, proofs } = await databaseSize(registry.owner);
  startProgram('verifier', registry, cleanup);
  const publish = (each: number, cycles: number): Promise<Publishing> =>
    measurePublishing(registry, { cycles, each, signal });
  const steady = await publish(quick ? 500 : 1_000, quick ? 2 : 16);
  const trickle = await publish(TRICKLE.each, TRICKLE.cycles);
  return [
    resultOf({
      name: 'bytes in Postgres per proof',
      value: bytes / proofs,
      unit: 'bytes',
      // No target for a quick run, in which the size of an empty registry dominates.
      ...(!quick && { target: { value: { atMost: 1_600 } } }),
      note: `all tables, indexes and TOAST of ${whole(proofs)} proofs`,
    }),
    writtenResult('bytes written per byte published', steady, 1.5),
    writtenResult('bytes written per byte, in a trickle', trickle),
    resultOf({
      name: 'bytes written per second at 5 proofs per second',
      value: (trickle.written * TRICKLE.perSecond) / (trickle.cycles * TRICKLE.each),
      unit: 'bytes',
      target: { value: { atMost: 100_000 } },
    }),
  ];
}

type Publishing = Awaited<ReturnType<typeof measurePublishing>>;

async function measurePublishing(
  registry: BenchRegistry,
  { cycles, each, signal }: { cycles: number; each: number; signal: AbortSignal },
) {
  return withCleanup(async (cleanup) => {
    const { append } = await startAppender(registry, signal, cleanup);
    const publisher = startProgram('publisher', registry, cleanup);
    await publisher.ready;
    const publish = async (): Promise<{ written: number; live: number }> => {
      await append(each);
      await untilPublished(registry, signal);
      const live = await liveBytes(registry.snapshotDir, await publishedLocation(registry));
      return { written: bytesToDisk(publisher.pid), live };
    };
    // Publishes once before measuring, because the first cycle after a start writes more than the new data.
    const before = await publish();
    let after = before;
    for (let cycle = 0; cycle < cycles; cycle += 1) after = await publish();
    const published = after.live - before.live;
    return { cycles, each, written: after.written - before.written, published };
  });
}

async function untilPublished(registry: BenchRegistry, signal: AbortSignal): Promise<void> {
  const covered = async (): Promise<number> =>
    (await publishedLocation(registry)).snapshot.logs[0]!.size;
  while ((await proofsAmong(registry.owner, await covered(), Number.MAX_SAFE_INTEGER)) > 0) {
    signal.throwIfAborted();
    await sleep(50);
  }
}

/** Bytes that a process wrote to disk by the kernel's count, in whole pages. */
function bytesToDisk(pid: number): number {
  const io = readFileSync(`/proc/${String(pid)}/io`, 'utf8');
  return Number(/^write_bytes: (\d+)$/m.exec(io)?.[1] ?? NaN);
}

function writtenResult(name: string, publishing: Publishing, atMost?: number): Result {
  const { cycles, each, written, published } = publishing;
  const kib = (bytes: number): string => `${(bytes / cycles / 1024).toFixed(0)} KiB`;
  return resultOf({
    name,
    value: written / published,
    unit: 'bytes',
    ...(atMost !== undefined && { target: { value: { atMost } } }),
    note:
      `${String(cycles)} publish cycles with ${String(each)} new proofs each: ${kib(written)} written per cycle, ` +
      `in whole pages by the kernel's count, for ${kib(published)} of lasting data`,
  });
}
