import { runFairness, type FairnessFound } from '../singles/fairness-run.js';
import { UNLIMITED } from '../service/limits.js';
import { percentileOf } from '../figures/percentile.js';
import { rowOf, type BenchContext, type Measurement, type Row } from '../row.js';
import { startStack } from '../service/stack.js';

const QUICK = { items: 5_000, underWay: 10_000, perSecond: 20, idle: 30, loaded: 40 };
const WHOLE = { items: 10_000, underWay: 20_000, perSecond: 20, idle: 400, loaded: 800 };

/** What the batches of one tenant do to another who sends alone. */
async function measure(context: BenchContext): Promise<Row[]> {
  const { dir, redisUrl, quick, signal } = context;
  const options = { redisUrl, workers: 1, recentLookupLimit: 100_000, env: { engine: UNLIMITED } };
  const stack = await startStack(dir, options);
  try {
    return fairnessRows(await runFairness(stack, quick ? QUICK : WHOLE, signal));
  } finally {
    await stack.close();
  }
}

/** What the fairness measurement has to say. */
export function fairnessRows(found: FairnessFound): Row[] {
  const {
    idleMs,
    loadedMs,
    besideReadsMs,
    readRate,
    items,
    underWay,
    perSecond,
    batchRate,
    unexpected,
  } = found;
  const all = idleMs.length + loadedMs.length + besideReadsMs.length;
  const of = (percent: number) => `${percentileOf(loadedMs, percent).toFixed(1)} ms`;
  return [
    rowOf({
      row: 'single execute beside batches, p99',
      value: percentileOf(loadedMs, 99),
      unit: 'ms',
      against: { what: 'the same without batches', value: percentileOf(idleMs, 99) },
      note:
        `${String(perSecond)}/s of one tenant, ${String(loadedMs.length)} of them, while another has ${String(underWay / items)} × ` +
        `${String(items)} items under way (${batchRate.toFixed(0)}/s became public); p50 ${of(50)}, without batches ` +
        `${percentileOf(idleMs, 50).toFixed(1)} ms; bound by CPU that is shared, and by one part of a batch under the append lock`,
    }),
    rowOf({
      row: 'single execute beside a hostile tenant, p99',
      value: percentileOf(besideReadsMs, 99),
      unit: 'ms',
      against: { what: 'the same without load', value: percentileOf(idleMs, 99) },
      reach: { ratio: { atMost: 3 } },
      note:
        `${String(perSecond)}/s of one tenant, ${String(besideReadsMs.length)} of them, while another has 64 reads for a rare status ` +
        `in flight (${readRate.toFixed(0)}/s answered); p50 ${percentileOf(besideReadsMs, 50).toFixed(1)} ms`,
    }),
    unexpected.row(
      'beside batches, errors and timeouts',
      `${String(all)} answered executions, and of the batches`,
    ),
  ];
}

export const fairness: Measurement = { name: 'fairness', measure };
