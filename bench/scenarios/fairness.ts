import { startBatchLoad } from '../harness/batch-load.js';
import { engineHeaders, executeAtRate, type Credential } from '../harness/engine-api.js';
import { nextPublication, published, untilIdle, untilPublished } from '../harness/public-api.js';
import { createTenants } from '../harness/registry.js';
import {
  resultOf,
  UnexpectedAnswers,
  type RunContext,
  type Scenario,
} from '../harness/scenario.js';
import { startStack } from '../harness/stack.js';
import { percentile } from '../harness/statistics.js';

/** One tenant's single executions: without load, and during another's batches and reads. */
export const fairness: Scenario = {
  name: 'fairness',
  run: async (context) => fairnessResults(await measure(context)),
};

const PER_SECOND = 20;
/** Items of the batches, and the numbers of executions that are measured without and with load. */
const QUICK = { items: 5_000, inFlight: 10_000, idle: 30, loaded: 40 };
const FULL = { items: 10_000, inFlight: 20_000, idle: 400, loaded: 800 };

/** Executions before the first measured one. */
const WARM_UP = 20;

/** Latencies are in milliseconds from request to receipt, rates in items or responses per second. */
async function measure({ dir, redis, quick, signal, cleanup }: RunContext) {
  const stack = await startStack(dir, { redis }, cleanup);
  const plan = quick ? QUICK : FULL;
  const { engineUrl, registry } = stack;
  const [neighbour] = await createTenants(registry, ['neighbour']);
  const unexpected = new UnexpectedAnswers();
  const trickle = async (count: number): Promise<number[]> => {
    const latencies: number[] = [];
    const load = { credentials: [neighbour!], perSecond: PER_SECOND, count, unexpected, signal };
    await executeAtRate(engineUrl, load, ({ ms }) => void latencies.push(ms));
    return latencies;
  };
  await trickle(WARM_UP);
  const idleMs = await trickle(plan.idle);

  const before = await published(stack);
  const load = startBatchLoad(stack, plan);
  const measureBesideBatches = async () => {
    // Every stage is busy once the first items are public.
    const from = await untilPublished(stack, before.proofs + 1, signal, before);
    const besideBatchesMs = await trickle(plan.loaded);
    const to = await nextPublication(stack, signal, from);
    const own = besideBatchesMs.length;
    const batchRate = ((to.proofs - from.proofs - own) * 1000) / (to.at - from.at);
    return { besideBatchesMs, batchRate };
  };
  const besideBatches = await Promise.race([measureBesideBatches(), load.failed]).finally(() =>
    // Ignores the error of the load, which the race has already thrown.
    load.stop().catch(() => undefined),
  );
  for (const [code, count] of Object.entries(load.retried)) unexpected.add(`batch ${code}`, count);

  await untilIdle(stack, signal);
  const reads = startReads(engineUrl, registry, unexpected, signal);
  const besideReadsMs = await trickle(plan.loaded);
  const readRate = await reads.stop();
  return { idleMs, ...besideBatches, besideReadsMs, readRate, unexpected };
}

/** Concurrent reads of the hostile tenant: far more than its share of connections. */
const CONCURRENT_READS = 64;
const READ_PATH = '/v1/proofs?status=REVOKED&limit=1';

/** Reads without pause; `stop` returns the responses per second. */
function startReads(
  engineUrl: string,
  credential: Credential,
  unexpected: UnexpectedAnswers,
  signal: AbortSignal,
): { stop(): Promise<number> } {
  const stopping = new AbortController();
  const began = performance.now();
  let answered = 0;
  const read = async (): Promise<void> => {
    while (!stopping.signal.aborted && !signal.aborted) {
      const response = await fetch(engineUrl + READ_PATH, { headers: engineHeaders(credential) });
      await response.arrayBuffer();
      // 503 is expected: the limit of concurrent reads per tenant.
      if (![200, 503].includes(response.status)) unexpected.add(`read ${String(response.status)}`);
      answered += 1;
    }
  };
  const reads = Promise.all(Array.from({ length: CONCURRENT_READS }, read));
  return {
    stop: async () => {
      stopping.abort();
      await reads;
      return (answered * 1000) / (performance.now() - began);
    },
  };
}

export function fairnessResults(measured: Awaited<ReturnType<typeof measure>>) {
  const { idleMs, besideBatchesMs, besideReadsMs, batchRate, readRate, unexpected } = measured;
  const all = idleMs.length + besideBatchesMs.length + besideReadsMs.length;
  const p50 = (values: readonly number[]): string => `p50 ${percentile(values, 50).toFixed(1)} ms`;
  const against = { what: 'the same without load', value: percentile(idleMs, 99) };
  const load = (ms: readonly number[]): string =>
    `${String(PER_SECOND)}/s of one tenant, ${String(ms.length)} executions`;
  return [
    resultOf({
      name: 'single execute beside batches, p99',
      value: percentile(besideBatchesMs, 99),
      unit: 'ms',
      against,
      note:
        `${load(besideBatchesMs)}, while another tenant sends batches (${batchRate.toFixed(0)}/s were published); ` +
        `${p50(besideBatchesMs)}, without load ${p50(idleMs)}; limited by shared CPU and by one chunk of a batch under the append lock`,
    }),
    resultOf({
      name: 'single execute beside a hostile tenant, p99',
      value: percentile(besideReadsMs, 99),
      unit: 'ms',
      against,
      target: { ratio: { atMost: 3 } },
      note:
        `${load(besideReadsMs)}, while another tenant has ${String(CONCURRENT_READS)} reads for a rare status in flight ` +
        `(${readRate.toFixed(0)}/s answered); ${p50(besideReadsMs)}`,
    }),
    unexpected.result(
      'beside load, errors and timeouts',
      `${String(all)} answered executions, and of the other tenant's requests`,
    ),
  ];
}
