import { join } from 'node:path';
import { measureGrowth } from '../growth/growth.js';
import { growthRows } from './growth-rows.js';
import type { BenchContext, Measurement, Row } from '../row.js';
import { sizesOf } from '../growth/sizes.js';

/**
 * What appending and looking up cost as a registry grows. The largest is the one that other
 * measurements look at, which this fills.
 */
export const growth: Measurement = { name: 'growth', needs: ['wrk', 'taskset'], measure };

async function measure(context: BenchContext): Promise<Row[]> {
  const { quick, dir, sharedDir, signal } = context;
  const { steps, recentLookupLimit } = sizesOf(context);
  const stretches = { stretches: quick ? 3 : 15, proofs: quick ? 500 : 1_000 };
  const rounds = { rounds: quick ? 1 : 6, seconds: quick ? 1 : 2 };
  const options = { steps, recentLookupLimit, ...stretches, ...rounds, signal };
  return growthRows(await measureGrowth(sharedDir, join(dir, 'beside'), options));
}
