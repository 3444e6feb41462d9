import { join } from 'node:path';
import { requireCorrect, runBatches } from '../harness/batch-load.js';
import { peakMemoryOf } from '../harness/cpu.js';
import { openSharedRegistry, sizesOf } from '../harness/fill.js';
import { proofPath, readiness } from '../harness/public-api.js';
import { randomProofIds } from '../harness/registry.js';
import { resultOf, type Result, type Scenario, type RunContext } from '../harness/scenario.js';
import { startPrograms, type BenchStack } from '../harness/stack.js';
import { whole } from '../harness/statistics.js';
import { runLookups, writePaths } from '../harness/wrk.js';
import { requireAnswered } from '../lookup/interleaved-load.js';

/** Peak memory of each program over the shared registry, after batches and lookups. */
export const memory: Scenario = { name: 'memory', needs: ['wrk', 'taskset'], run };

const QUICK = { items: 500, inFlight: 2_500, seconds: 1, lookupSeconds: 1 };
const FULL = { items: 5_000, inFlight: 25_000, seconds: 20, lookupSeconds: 10 };
const MAX_MIB = 512;

async function run(context: RunContext): Promise<Result[]> {
  const { quick, redisUrl, redisPid, signal, cleanup } = context;
  const { lookupSeconds, ...load } = quick ? QUICK : FULL;
  const { recentLookupLimit } = sizesOf(context);
  const registry = await openSharedRegistry(context);
  const stack = await startPrograms(registry, { recentLookupLimit, redisUrl }, cleanup);
  const options = { ...load, warmUpSeconds: 0, checkEveryMs: 1_000, redisPid, signal };
  const batches = await runBatches(stack, options);
  requireCorrect(batches);
  const lookups = await lookUp(stack, lookupSeconds, context);
  return Object.entries(stack.programs).map(([name, { pid }]) =>
    resultOf({
      name: `memory: ${name}`,
      value: peakMemoryOf(pid),
      unit: 'MiB',
      target: { value: { atMost: MAX_MIB } },
      note:
        `peak of ${whole(batches.items)} proofs in batches and ${whole(lookups)} lookups ` +
        'over the whole history',
    }),
  );
}

/** Number of IDs to look up: more than the public API caches. */
const IDS = 20_000;

async function lookUp(
  { publicUrl, registry }: BenchStack,
  seconds: number,
  { dir, signal }: RunContext,
): Promise<number> {
  const { tree_size: to } = await readiness(publicUrl);
  const ids = await randomProofIds(registry)(0, to, IDS);
  const pathsFile = await writePaths(join(dir, 'memory.paths'), ids.map(proofPath));
  const load = { url: publicUrl, pathsFile, connections: 64, seconds, seed: 1, signal };
  const result = await runLookups(load);
  requireAnswered('public API', result, false);
  return result.requests;
}
