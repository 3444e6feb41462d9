import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { logger } from '#runtime/process/log';
import { runBatches } from '../batches/batch-run.js';
import type { Child } from '../service/child.js';
import { publishedManifest } from '../service/published.js';
import { publishedIds } from '../lookups/published-ids.js';
import { openBenchRegistry } from '../service/registry.js';
import { resourcesOf } from '../figures/resources.js';
import { rowOf, type BenchContext, type Measurement, type Row } from '../row.js';
import { fillTo, sizesOf } from '../growth/sizes.js';
import { startPrograms, type BenchStack } from '../service/stack.js';
import { runWrk } from '../lookups/wrk.js';

/** What the programs hold in memory over the large registry, after they had something to do. */
export const memory: Measurement = { name: 'memory', needs: ['wrk', 'taskset'], measure };

const MOST_MIB = 512;

async function measure(context: BenchContext): Promise<Row[]> {
  const { quick, redisUrl, redisPid, signal } = context;
  const sizes = sizesOf(context);
  const registry = await openBenchRegistry(context.sharedDir, logger('bench', 'warn'));
  try {
    await fillTo(registry, { ...context, ...sizes });
    const stack = await startPrograms(registry, { ...sizes, redisUrl, workers: 1 });
    try {
      const { items, lost, checked } = await runBatches(stack, {
        items: quick ? 500 : 5_000,
        underWay: quick ? 2_500 : 25_000,
        warmUpSeconds: 0,
        seconds: quick ? 1 : 20,
        redisPid,
        checkEveryMs: 1_000,
        signal,
      });
      if (lost > 0 || checked.wrong.length > 0) {
        throw new Error(`${String(lost)} items were lost, ${checked.wrong.join('; ')}`);
      }
      const lookups = await lookUp(stack, context);
      const work = `after ${items.toLocaleString('en-US')} proofs in batches and ${lookups.toLocaleString('en-US')} lookups over the whole history`;
      return memoryRows(stack, work);
    } finally {
      await stack.close();
    }
  } finally {
    await registry.close();
  }
}

/** Enough ids that no cache of the facade holds all that is asked for. */
const IDS = 20_000;

async function lookUp(stack: BenchStack, { quick, dir, signal }: BenchContext): Promise<number> {
  const { snapshotDir } = stack.registry;
  const manifest = await publishedManifest(stack.registry);
  if (manifest === null) throw new Error('nothing is published');
  const { tree_size: size } = manifest;
  const ids = await publishedIds(snapshotDir, size, { from: 0, to: size }, IDS);
  const pathsFile = join(dir, 'memory.paths');
  await writeFile(pathsFile, ids.map((id) => `/api/public/verify/proof/${id}\n`).join(''));
  const seconds = quick ? 1 : 10;
  const load = { url: stack.publicUrl, pathsFile, connections: 64, seconds, seed: 1 };
  const { requests, refused, failed } = await runWrk(load, signal);
  if (refused + failed > 0)
    throw new Error(`${String(refused + failed)} lookups were not answered`);
  return requests;
}

function memoryRows(stack: BenchStack, work: string): Row[] {
  const programs: Record<string, Child | undefined> = {
    engine: stack.engine,
    worker: stack.workers[0],
    verifier: stack.verifier,
    publisher: stack.publisher,
    facade: stack.facade,
  };
  return Object.entries(programs).map(([name, child]) => {
    const resources = child === undefined ? null : resourcesOf(child.pid);
    const { peakMiB = NaN, residentMiB = NaN } = resources ?? {};
    return rowOf({
      row: `memory: ${name}`,
      value: peakMiB,
      unit: 'MiB',
      reach: { value: { atMost: MOST_MIB } },
      note: `at most so far; ${residentMiB.toFixed(0)} MiB resident in the end, ${work}`,
    });
  });
}
