import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { dropCluster } from '#runtime/embedded/place';
import { withCleanup } from '../harness/cleanup.js';
import { cpuSecondsOf } from '../harness/cpu.js';
import { admittedIn, openFilledRegistry, sizesOf, startAppender } from '../harness/fill.js';
import { proofPath, readiness } from '../harness/public-api.js';
import { randomProofIds, type BenchRegistry } from '../harness/registry.js';
import {
  comparedWithFirst,
  interleaved,
  type Result,
  type Scenario,
  type RunContext,
} from '../harness/scenario.js';
import { sumOf, whole } from '../harness/statistics.js';
import { writePaths } from '../harness/wrk.js';
import { loadInterleaved, type LoadPlan, type Target } from '../lookup/interleaved-load.js';
import { keepPublished, startPublicApi } from '../lookup/servers.js';

/**
 * CPU time of appends and of lookups, in interleaved rounds over registries of several sizes. This
 * scenario fills the largest registry, which other scenarios share.
 */
export const growth: Scenario = { name: 'growth', needs: ['wrk', 'taskset'], run };

const QUICK = { appends: { rounds: 3, proofs: 500 }, lookups: { rounds: 1, seconds: 1 } };
const FULL = { appends: { rounds: 15, proofs: 1_000 }, lookups: { rounds: 6, seconds: 2 } };

async function run(context: RunContext): Promise<Result[]> {
  const { quick, dir, sharedDir, signal, cleanup } = context;
  const plan = quick ? QUICK : FULL;
  const { steps, recentLookupLimit } = sizesOf(context);
  const registries: BenchRegistry[] = [];
  for (const proofs of steps) {
    const isShared = proofs === steps.at(-1);
    const home = isShared ? sharedDir : join(dir, String(proofs));
    if (!isShared) {
      await dropCluster(home);
      await rm(home, { recursive: true, force: true, maxRetries: 10 });
    }
    const options = { proofs, recentLookupLimit, signal };
    registries.push(await openFilledRegistry(home, options, cleanup));
  }
  const sizes: string[] = [];
  for (const registry of registries) sizes.push(whole(await admittedIn(registry)));
  const plans = { ...plan.lookups, signal };
  const lookup = await lookupCosts(registries, dir, recentLookupLimit, plans);
  const append = await appendCosts(registries, plan.appends, signal);
  // Compares each size with the smallest, which is the first, round by round.
  return Object.entries({ append, lookup }).flatMap(([figure, costs]) =>
    comparedWithFirst(
      sizes.map((size, at) => ({
        name: `growth: ${figure} cost at ${size}`,
        costs: costs[at]!,
        note: 'filled in batches over HTTP',
      })),
      { unit: 'µs of CPU', what: `the cost at ${sizes[0]!}`, digits: 0 },
    ),
  );
}

/** Number of IDs to look up: their records do not fit into the processor's caches. */
const IDS = 5_000;

/** CPU microseconds of the public API per lookup of a recent proof, by registry and round. */
async function lookupCosts(
  registries: readonly BenchRegistry[],
  dir: string,
  recentLookupLimit: number,
  plan: LoadPlan,
): Promise<number[][]> {
  return withCleanup(async (cleanup) => {
    const targets: Target[] = [];
    for (const [i, registry] of registries.entries()) {
      // Keeps publishing, because lookups need a snapshot that is not expired.
      await keepPublished(registry, cleanup);
      const { url, pid } = await startPublicApi(registry, cleanup);
      const { tree_size: to } = await readiness(url);
      const ids = await randomProofIds(registry)(Math.max(0, to - recentLookupLimit), to, IDS);
      const pathsFile = await writePaths(join(dir, `${String(i)}.paths`), ids.map(proofPath));
      targets.push({ name: String(i), url, pids: [pid], pathsFile });
    }
    const rounds = await loadInterleaved(targets, plan);
    return rounds.map((ofTarget) => ofTarget.map(({ cpuMicros }) => cpuMicros));
  });
}

/** Rounds before the first measured one, until the hot code is compiled. */
const WARM_UP_ROUNDS = 3;

/** CPU microseconds of engine, worker and Postgres per proof, by registry and round. */
async function appendCosts(
  registries: readonly BenchRegistry[],
  { rounds, proofs }: { rounds: number; proofs: number },
  signal: AbortSignal,
): Promise<number[][]> {
  return withCleanup(async (cleanup) => {
    const loads: (() => Promise<number>)[] = [];
    for (const registry of registries) {
      const { pids, append } = await startAppender(registry, signal, cleanup);
      await append(WARM_UP_ROUNDS * proofs);
      const cpuSeconds = (): number => sumOf([...pids, registry.postgresPid], cpuSecondsOf);
      loads.push(async () => {
        const before = cpuSeconds();
        await append(proofs);
        return ((cpuSeconds() - before) * 1e6) / proofs;
      });
    }
    return interleaved(rounds, loads);
  });
}
