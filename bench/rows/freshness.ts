import { runFreshness, type FreshnessFound } from '../singles/freshness-run.js';
import { UNLIMITED } from '../service/limits.js';
import { percentileOf } from '../figures/percentile.js';
import { rowOf, type BenchContext, type Measurement, type Row } from '../row.js';
import { startStack } from '../service/stack.js';
import { ASK_EVERY_MS } from '../singles/until-valid.js';

const QUICK = { full: { seconds: 1, items: 2_500, underWay: 10_000 }, samples: 20, perSecond: 10 };
const WHOLE = { full: { seconds: 15, items: 5_000, underWay: 20_000 }, samples: 240, perSecond: 8 };

/** How long it takes from a receipt until the public can verify what it is for. */
async function measure(context: BenchContext): Promise<Row[]> {
  const { dir, redisUrl, quick, signal } = context;
  const options = { redisUrl, workers: 1, recentLookupLimit: 100_000, env: { engine: UNLIMITED } };
  const stack = await startStack(dir, options);
  try {
    return freshnessRows(await runFreshness(stack, quick ? QUICK : WHOLE, signal));
  } finally {
    await stack.close();
  }
}

/** What the freshness measurement has to say. */
export function freshnessRows({ ms, fullRate, sentRate, unexpected }: FreshnessFound): Row[] {
  const seconds = ms.map((one) => one / 1000);
  const load = `${String(ms.length)} samples beside ${sentRate.toFixed(0)}/s in batches, where ${fullRate.toFixed(0)}/s became public at most`;
  return [
    rowOf({
      row: 'freshness: receipt to public verdict, p99',
      value: percentileOf(seconds, 99),
      unit: 's',
      reach: { value: { atMost: 1.5 } },
      note: `${load}; asked for every ${String(ASK_EVERY_MS)} ms; bound by the publisher's tick of a second`,
    }),
    rowOf({
      row: 'freshness: receipt to public verdict, p50',
      value: percentileOf(seconds, 50),
      unit: 's',
      note: `the quickest ${Math.min(...seconds).toFixed(2)} s, the slowest ${Math.max(...seconds).toFixed(2)} s`,
    }),
    unexpected.row(
      'freshness: errors and timeouts',
      `${String(ms.length)} executions followed to their verdict, and of the batches beside them`,
    ),
  ];
}

export const freshness: Measurement = { name: 'freshness', measure };
