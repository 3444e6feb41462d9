import { requireCorrect, runBatches } from '../harness/batch-load.js';
import { peakMemoryOf } from '../harness/cpu.js';
import { openSharedRegistry } from '../harness/fill.js';
import { readiness } from '../harness/public-api.js';
import { randomProofIds } from '../harness/registry.js';
import { resultOf, type Scenario } from '../harness/scenario.js';
import { startPrograms } from '../harness/stack.js';
import { whole } from '../harness/statistics.js';
import { lookUpProofs } from '../lookup/interleaved-load.js';

const QUICK = { items: 500, inFlight: 2_500, seconds: 1, lookupSeconds: 1 };
const FULL = { items: 5_000, inFlight: 25_000, seconds: 20, lookupSeconds: 10 };
/** Number of IDs to look up: more than the public API keeps in its cache. */
const IDS = 20_000;
const MAX_MIB = 512;

/** Peak memory of each program over the shared registry, after batches and lookups. */
export const memory: Scenario = {
  name: 'memory',
  needs: ['wrk', 'taskset'],
  run: async (context) => {
    const { quick, dir, redis, signal, cleanup } = context;
    const { lookupSeconds, ...load } = quick ? QUICK : FULL;
    const registry = await openSharedRegistry(context);
    const stack = await startPrograms(registry, { redis }, cleanup);
    const options = { ...load, warmUpSeconds: 0, checkEveryMs: 1_000, signal };
    const batches = await runBatches(stack, options);
    requireCorrect(batches);
    const { tree_size: to } = await readiness(stack.publicUrl);
    const ids = await randomProofIds(registry)(0, to, IDS);
    const lookups = await lookUpProofs(stack.publicUrl, ids, {
      dir,
      seconds: lookupSeconds,
      signal,
    });
    return Object.entries(stack.programs).map(([name, { pid }]) =>
      resultOf({
        name: `memory: ${name}`,
        value: peakMemoryOf(pid),
        unit: 'MiB',
        target: { value: { atMost: MAX_MIB } },
        note:
          `peak after ${whole(batches.items)} proofs in batches and ${whole(lookups)} lookups ` +
          'over the whole history',
      }),
    );
  },
};
