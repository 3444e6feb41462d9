import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { treeSize } from '#sql/log/log';
import { verifiedPrefix } from '#sql/log/verdicts';
import { startChild } from '../harness/child.js';
import { withCleanup } from '../harness/command.js';
import { fillRegistry, sizesOf, startAppender } from '../harness/fill.js';
import { startProgram } from '../harness/programs.js';
import type { PublishCycle, PublisherTask } from '../harness/publisher-process.js';
import { databaseSize, openBenchRegistry, type BenchRegistry } from '../harness/registry.js';
import { resultOf, type Result, type Scenario, type RunContext } from '../harness/scenario.js';
import { liveBytes, publishedManifest } from '../harness/snapshot.js';
import { whole } from '../harness/statistics.js';

/** Bytes per proof in Postgres, and bytes written per byte published. */
export const storage: Scenario = { name: 'storage', run };

async function run(context: RunContext): Promise<Result[]> {
  const { quick, sharedDir, signal } = context;
  const sizes = sizesOf(context);
  return withCleanup(async (cleanup) => {
    const registry = await openBenchRegistry(sharedDir);
    cleanup.push(() => registry.close());
    await fillRegistry(registry, { ...sizes, signal });
    const { bytes, proofs } = await databaseSize(registry.owner);
    const verifier = startProgram('verifier', registry, sizes);
    cleanup.push(() => verifier.stop());
    const cycles = quick ? 2 : 16;
    const publish = (each: number): Promise<Publishing> =>
      measurePublishing(registry, { ...sizes, cycles, each, signal });
    const steady = await publish(quick ? 500 : 1_000);
    const trickle = await publish(5);
    return [
      resultOf({
        name: 'bytes in Postgres per proof',
        value: bytes / proofs,
        unit: 'bytes',
        // Few proofs share the size of an empty registry.
        ...(!quick && { target: { value: { atMost: 1_600 } } }),
        note: `all tables, indexes and TOAST of ${whole(proofs)} proofs`,
      }),
      writtenResult('bytes written per byte published', steady, 3),
      writtenResult('bytes written per byte, in a trickle', trickle),
    ];
  });
}

interface Publishing {
  cycles: number;
  each: number;
  /** Written, by the publisher's own count and by the kernel's. */
  written: number;
  toDisk: number;
  /** Growth of the snapshot. */
  published: number;
}

/** Publishes `each` new proofs per publish cycle, with the program's publisher. */
async function measurePublishing(
  registry: BenchRegistry,
  options: { recentLookupLimit: number; cycles: number; each: number; signal: AbortSignal },
): Promise<Publishing> {
  const { recentLookupLimit, cycles, each, signal } = options;
  const { snapshotDir, keyFiles, origin, snapshotName } = registry;
  const databaseUrl = registry.roleUrl('svc_publisher');
  const published = { snapshotDir, keyFiles, origin, snapshotName };
  const task: PublisherTask = { databaseUrl, ...published, recentLookupLimit };
  const liveSize = async (): Promise<number> =>
    liveBytes(snapshotDir, await publishedManifest(registry));
  return withCleanup(async (cleanup) => {
    const { append } = await startAppender(registry, signal, cleanup);
    const publisher = startChild({ module: 'bench/harness/publisher-process', task });
    cleanup.push(() => publisher.stop());
    await publisher.ready;
    const publish = (): Promise<PublishCycle> => publisher.request<PublishCycle>({});
    // The first cycle after a start writes more than what is new.
    await publish();
    const before = { live: await liveSize(), toDisk: bytesToDisk(publisher.pid) };
    let written = 0;
    for (let cycle = 0; cycle < cycles; cycle += 1) {
      await append(each);
      await untilVerified(registry, signal);
      written += (await publish()).bytes;
    }
    const toDisk = bytesToDisk(publisher.pid) - before.toDisk;
    return { cycles, each, written, toDisk, published: (await liveSize()) - before.live };
  });
}

/** Waits until the verifier has verified the whole log. */
async function untilVerified({ owner }: BenchRegistry, signal: AbortSignal): Promise<void> {
  const size = await treeSize(owner);
  while (((await verifiedPrefix(owner))?.treeSize ?? 0) < size) {
    signal.throwIfAborted();
    await sleep(20);
  }
}

/** Bytes that the kernel has to write to a disk for a process, in whole pages. */
function bytesToDisk(pid: number): number {
  const io = readFileSync(`/proc/${String(pid)}/io`, 'utf8');
  return Number(/^write_bytes: (\d+)$/m.exec(io)?.[1] ?? NaN);
}

function writtenResult(name: string, publishing: Publishing, atMost?: number): Result {
  const { cycles, each, written, toDisk, published } = publishing;
  const kib = (bytes: number): string => `${(bytes / cycles / 1024).toFixed(0)} KiB`;
  return resultOf({
    name,
    value: written / published,
    unit: 'bytes',
    ...(atMost !== undefined && { target: { value: { atMost } } }),
    note:
      `${String(cycles)} publish cycles with ${String(each)} new proofs each: ${kib(written)} written per cycle for ` +
      `${kib(published)} that stay; ${(toDisk / published).toFixed(2)} in whole pages by the kernel's count`,
  });
}
