import { setTimeout as sleep } from 'node:timers/promises';
import { rateOf, requireCorrect, runBatches } from '../harness/batch-load.js';
import { batchBody, executeAtRate, sendBatch } from '../harness/engine-api.js';
import { newRun } from '../harness/items.js';
import { LOOKUP_EVERY_MS, untilIdle, untilValid } from '../harness/public-api.js';
import {
  resultOf,
  UnexpectedAnswers,
  type RunContext,
  type Scenario,
} from '../harness/scenario.js';
import { startStack, type BenchStack } from '../harness/stack.js';
import { percentile } from '../harness/statistics.js';

/** The time from a receipt to the public verdict, at half of the service's maximum rate. */
export const freshness: Scenario = {
  name: 'freshness',
  run: async (context) => freshnessResults(await measure(context)),
};

const QUICK = { seconds: 1, items: 2_500, inFlight: 10_000, samples: 20, perSecond: 10 };
const FULL = { seconds: 15, items: 5_000, inFlight: 20_000, samples: 240, perSecond: 8 };

/**
 * Measures the milliseconds from receipt to public verdict of each sample, and the rates in proofs per
 * second.
 */
async function measure({ dir, redis, quick, signal, cleanup }: RunContext) {
  const stack = await startStack(dir, { redis }, cleanup);
  const { engineUrl, publicUrl, registry } = stack;
  const { samples, perSecond, ...load } = quick ? QUICK : FULL;
  const options = { ...load, warmUpSeconds: 0, checkEveryMs: 1_000, signal };
  const full = await runBatches(stack, options);
  requireCorrect(full);
  const fullRate = rateOf(full);
  // Waits, so that the first samples do not queue behind the backlog of the load at the full rate.
  await untilIdle(stack, signal);
  const unexpected = new UnexpectedAnswers();
  const done = new AbortController();
  const stopping = AbortSignal.any([done.signal, signal]);
  const sending = sendPaced(stack, fullRate / 2, unexpected, stopping);
  // The load is awaited at the end; until then a rejection must not end the process.
  sending.catch(() => undefined);
  const ms: number[] = [];
  try {
    const sampled = { credentials: [registry], perSecond, count: samples, unexpected, signal };
    await executeAtRate(engineUrl, sampled, async ({ at, receipt }) => {
      const valid = await untilValid(publicUrl, receipt.registry_proof_id, unexpected);
      if (valid !== null) ms.push(valid - at);
    });
  } finally {
    done.abort();
  }
  return { ms, fullRate, sentRate: await sending, unexpected };
}

/** Small batches, for a steady stream. */
const BATCHES_PER_SECOND = 5;

/** Sends batches at a rate, one at a time, until the signal aborts. Returns accepted items per second. */
async function sendPaced(
  { engineUrl, registry }: BenchStack,
  itemsPerSecond: number,
  unexpected: UnexpectedAnswers,
  signal: AbortSignal,
): Promise<number> {
  const source = { tenantId: registry.tenantId, run: newRun() };
  const items = Math.max(1, Math.round(itemsPerSecond / BATCHES_PER_SECOND));
  let accepted = 0;
  const began = performance.now();
  for (let n = 0; !signal.aborted; n += 1) {
    const answer = await sendBatch(engineUrl, registry, batchBody(source, n * items, items));
    if (answer.batchId !== null) accepted += items;
    else unexpected.add(`batch ${String(answer.status)} ${answer.code}`);
    const early = began + ((n + 1) * 1000) / BATCHES_PER_SECOND - performance.now();
    if (early > 0) await sleep(early, undefined, { signal }).catch(() => undefined);
  }
  return (accepted * 1000) / (performance.now() - began);
}

function freshnessResults(measured: Awaited<ReturnType<typeof measure>>) {
  const { ms, fullRate, sentRate, unexpected } = measured;
  const seconds = ms.map((one) => one / 1000);
  return [
    resultOf({
      name: 'freshness: receipt to public verdict, p99',
      value: percentile(seconds, 99),
      unit: 's',
      target: { value: { atMost: 1 } },
      note:
        `${String(ms.length)} samples under batches of ${sentRate.toFixed(0)} items/s; the maximum was ${fullRate.toFixed(0)}/s; ` +
        `looked up every ${String(LOOKUP_EVERY_MS)} ms; limited by publish cycles of half a second`,
    }),
    resultOf({
      name: 'freshness: receipt to public verdict, p50',
      value: percentile(seconds, 50),
      unit: 's',
      note: `minimum ${Math.min(...seconds).toFixed(2)} s, maximum ${Math.max(...seconds).toFixed(2)} s`,
    }),
    unexpected.result(
      'freshness: errors and timeouts',
      `${String(ms.length)} executions, their lookups, and the batches sent meanwhile`,
    ),
  ];
}
