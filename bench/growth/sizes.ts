import { bringUpTo, type Plan } from '../filling/generator.js';
import type { BenchRegistry } from '../service/registry.js';
import type { BenchContext } from '../row.js';
import type { Stage } from '../filling/stage.js';

/** Of the registry that lookups, storage and memory are measured over. */
export interface Sizes {
  proofs: number;
  recentLookupLimit: number;
  /** Where costs are held against each other while it grows; the last is `proofs`. */
  steps: readonly number[];
}

export function sizesOf({ quick }: Pick<BenchContext, 'quick'>): Sizes {
  return quick
    ? { proofs: 8_000, recentLookupLimit: 2_000, steps: [800, 8_000] }
    : { proofs: 1_000_000, recentLookupLimit: 100_000, steps: [10_000, 100_000, 1_000_000] };
}

/** Tenfold from ten thousand on, and `most` itself in the end. */
export function scaleSteps(most: number): number[] {
  const steps: number[] = [];
  for (let step = 10_000; step < most; step *= 10) steps.push(step);
  return [...steps, most];
}

/** Two processes fill, since they are what limits it, while verifier and publisher run beside them. */
const FILLING: Omit<Plan, 'proofs' | 'recentLookupLimit'> = {
  processes: 2,
  group: 250,
  lanes: 3,
  inTurn: false,
  profile: false,
};

/** Fills a registry up to `proofs`, if it has fewer, and has all of it verified and published. */
export async function fillTo(
  registry: BenchRegistry,
  options: { dir: string; proofs: number; recentLookupLimit: number; signal: AbortSignal },
): Promise<Stage[]> {
  const { dir, proofs, recentLookupLimit, signal } = options;
  return bringUpTo(registry, dir, signal, { ...FILLING, proofs, recentLookupLimit });
}
