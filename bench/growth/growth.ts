import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { removeEmbeddedPostgres } from '#runtime/embedded/start';
import { connect } from '#runtime/postgres/connect';
import { logger } from '#runtime/process/log';
import { startAppending, type Appending } from './appending.js';
import { closing } from '../closing.js';
import { proofsIn } from '../filling/generator.js';
import type { GrowthPoint } from '../rows/growth-rows.js';
import { lookupCosts } from '../lookups/lookup-costs.js';
import { openBenchRegistry, type BenchRegistry } from '../service/registry.js';
import { fillTo } from './sizes.js';

export interface GrowthOptions {
  /** Sizes, the smallest first. */
  steps: readonly number[];
  recentLookupLimit: number;
  /** Of appending: how often, and how many proofs each time. */
  stretches: number;
  proofs: number;
  /** Of lookups: how often, and how many seconds each time. */
  rounds: number;
  seconds: number;
  /** Called before the largest registry is filled up to a step; what it throws ends all of it. */
  before?: (registry: BenchRegistry, step: number) => Promise<void>;
  signal: AbortSignal;
}

/**
 * Fills the registry in `dir` up to the last step, and one for each smaller step beside it, and asks
 * all of them in turn: what happens to the machine meanwhile happens to all sizes. Those in
 * `besideDir` are filled anew and removed again.
 */
export async function measureGrowth(
  dir: string,
  besideDir: string,
  options: GrowthOptions,
): Promise<GrowthPoint[]> {
  const { steps } = options;
  const smaller = steps.slice(0, -1).map((step) => join(besideDir, String(step)));
  const measured = closing(async (open) => {
    const registries: BenchRegistry[] = [];
    const opened = async (where: string): Promise<BenchRegistry> => {
      const registry = await openBenchRegistry(where, logger('bench', 'warn'));
      open.push(() => registry.close());
      return registry;
    };
    const largest = await opened(dir);
    // Step by step only for somebody who wants to have a say in between.
    for (const step of options.before === undefined ? steps.slice(-1) : steps) {
      await options.before?.(largest, step);
      await fillTo(largest, { ...options, dir, proofs: step });
    }
    for (const [i, where] of smaller.entries()) {
      await removeRegistry(where);
      const registry = await opened(where);
      registries.push(registry);
      await fillTo(registry, { ...options, dir: where, proofs: steps[i] ?? 0 });
    }
    registries.push(largest);
    const sizes: number[] = [];
    for (const registry of registries) sizes.push(await proofsIn(registry));
    const lookups = await lookupCosts(registries, besideDir, options);
    const appends = await appendCosts(registries, options);
    return sizes.map((proofs, i) => ({
      proofs,
      append: appends[i] ?? [],
      lookup: lookups[i] ?? [],
    }));
  });
  return measured.finally(async () => {
    for (const where of smaller) await removeRegistry(where);
  });
}

/** Its database may live elsewhere than in its directory. */
async function removeRegistry(dir: string): Promise<void> {
  await removeEmbeddedPostgres(dir);
  await rm(dir, { recursive: true, force: true, maxRetries: 10 });
}

/** Stretches that are appended before any counts: until all that is hot is compiled. */
const WARM_UP = 3;

/** By registry, of each stretch. */
async function appendCosts(
  registries: readonly BenchRegistry[],
  { stretches, proofs, signal }: GrowthOptions,
): Promise<number[][]> {
  return closing(async (open) => {
    const all: { appending: Appending; costs: number[] }[] = [];
    for (const registry of registries) {
      const owner = connect(registry.ownerUrl, { application: 'bench', max: 1 });
      open.push(() => owner.end({ timeout: 5 }));
      const appending = await startAppending(registry, owner);
      open.push(() => appending.close());
      await appending.append(WARM_UP * proofs);
      all.push({ appending, costs: [] });
    }
    for (let i = 0; i < stretches; i += 1) {
      for (const { appending, costs } of all) {
        signal.throwIfAborted();
        costs.push(await appending.append(proofs));
      }
    }
    return all.map(({ costs }) => costs);
  });
}
