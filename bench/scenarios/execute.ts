import { availableParallelism } from 'node:os';
import type { JsonValue } from '#protocol/json';
import { startServer } from '../harness/child.js';
import type { Watched } from '../harness/cpu.js';
import { executeAtRate } from '../harness/engine-api.js';
import { startStack } from '../harness/stack.js';
import {
  interleaved,
  resultOf,
  UnexpectedAnswers,
  type Result,
  type RunContext,
  type Scenario,
} from '../harness/scenario.js';
import { median, percentile, spread, sumOf } from '../harness/statistics.js';
import { CONNECTIONS, type ExecuteLoadResult, runExecuteLoad } from '../harness/wrk.js';
import { type Admission, checkReceipts, outsiderOf } from '../receipts/receipt-checker.js';

const QUICK = { rounds: 1, seconds: 2, warmUpSeconds: 1, receipts: 5 };
const FULL = { rounds: 5, seconds: 8, warmUpSeconds: 8, receipts: 30 };
const RECEIPT_PUBLIC_WITHIN_MS = 60_000;

/** Single executions, in rounds that alternate with those of an Express app that only echoes. */
export const execute: Scenario = {
  name: 'execute',
  needs: ['wrk'],
  run: async (context) => executeResults(await measure(context)),
};

type ExecuteMeasured = Awaited<ReturnType<typeof measure>>;

async function measure(context: RunContext) {
  const { dir, quick, redis, signal, cleanup } = context;
  const stack = await startStack(dir, { redis }, cleanup);
  const plan = quick ? QUICK : FULL;
  const loader = (url: string, watched: Watched) => (seconds: number) =>
    runExecuteLoad({ url, watched, credential: stack.registry, seconds, dir, signal });
  const peer = await startServer({ module: 'bench/harness/peer-process', task: {} }, cleanup);
  const loadEcho = loader(peer.url, { echo: peer.pid });
  const loadEngine = loader(stack.engineUrl, stack.watched);
  await loadEngine(plan.warmUpSeconds);
  await loadEcho(Math.min(plan.warmUpSeconds, 2));
  const [echo = [], engine = []] = await interleaved(
    plan.rounds,
    [loadEcho, loadEngine].map((load) => () => load(plan.seconds)),
  );
  const unexpected = new UnexpectedAnswers();
  const sent: Admission[] = [];
  const { receipts: count, seconds } = plan;
  const credentials = [stack.registry];
  // One more round under the same load, with additional executions whose receipts are checked.
  const options = { credentials, perSecond: count / seconds, count, unexpected, signal };
  const [checked] = await Promise.all([
    loadEngine(seconds),
    executeAtRate(stack.engineUrl, options, ({ receipt }, body) => {
      sent.push({ receipt, request: JSON.parse(body) as JsonValue, effect: 'ADMIT' });
    }),
  ]);
  const receipts = await checkReceipts(outsiderOf(stack), sent, RECEIPT_PUBLIC_WITHIN_MS);
  return { engine, echo, checked, receipts, unexpected };
}

const NAME = `single execute, ${String(CONNECTIONS)} connections`;

const rateOf = ({ requests, seconds }: ExecuteLoadResult): number => requests / seconds;
const latency = (rounds: readonly ExecuteLoadResult[], percent: number): number =>
  percentile(
    rounds.flatMap(({ latencies }) => latencies),
    percent,
  );

function executeResults(measured: ExecuteMeasured): Result[] {
  const { engine, echo } = measured;
  const [rates, echoRates] = [engine.map(rateOf), echo.map(rateOf)];
  const wrkBusy = (rounds: readonly ExecuteLoadResult[]): string =>
    median(rounds.map(({ cpuSeconds, seconds }) => (cpuSeconds / seconds) * 100)).toFixed(0);
  const roundTails = engine.map((round) => latency([round], 99));
  return [
    resultOf({
      name: NAME,
      value: median(rates),
      unit: 'req/s',
      against: {
        what: 'an Express app that parses, validates and echoes, in one process',
        value: median(echoRates),
      },
      target: { ratio: { atLeast: 0.4 } },
      note:
        `median of ${String(engine.length)} interleaved rounds: ${spread(rates)}, the echo ${spread(echoRates)}; CPU-bound: nothing ` +
        `is pinned to a core; the Express app and wrk each keep one core busy, while the service shares ${String(availableParallelism())} cores with ` +
        `wrk; wrk used ${wrkBusy(engine)} % of a core, ${wrkBusy(echo)} % with the echo`,
    }),
    resultOf({
      name: `${NAME}, p99`,
      value: latency(engine, 99),
      unit: 'ms',
      target: { value: { atMost: 50 } },
      note:
        `saturated: each connection sends as soon as it is answered; p50 ${latency(engine, 50).toFixed(1)}, p99 of each ` +
        `round ${spread(roundTails, 1)}; the echo ${latency(echo, 99).toFixed(1)}`,
    }),
    cpuPerRequest(measured),
    unexpectedAnswers(measured),
  ];
}

/** Mean CPU time per request over all rounds, which other load on the machine hardly affects. */
function cpuPerRequest({ engine, echo }: ExecuteMeasured): Result {
  const micros = (
    rounds: readonly ExecuteLoadResult[],
    of: (round: ExecuteLoadResult) => number = ({ cpu }) => cpu.total,
  ): number =>
    sumOf(rounds, (round) => of(round) * round.requests) /
    sumOf(rounds, ({ requests }) => requests);
  const parts = Object.keys(engine[0]?.cpu.micros ?? {}).map(
    (name) => `${name} ${micros(engine, ({ cpu }) => cpu.micros[name] ?? 0).toFixed(0)}`,
  );
  const wrk = micros(engine, ({ cpuSeconds, requests }) => (cpuSeconds * 1e6) / requests);
  return resultOf({
    name: 'single execute: CPU per request',
    value: micros(engine),
    unit: 'µs',
    against: { what: 'the echo', value: micros(echo) },
    note: `${parts.join(', ')}, and wrk ${wrk.toFixed(0)}`,
  });
}

/** Only a 200 is expected: the policy denies no body of the load, and no admission takes long. */
function unexpectedAnswers(measured: ExecuteMeasured): Result {
  const { engine, echo, checked, receipts, unexpected } = measured;
  const rounds = [...engine, ...echo, checked];
  for (const round of rounds) unexpected.addLoad(round);
  for (const fault of receipts.wrong) unexpected.add(`receipt ${fault}`);
  if (receipts.checked === 0) unexpected.add('no receipt was checked');
  const requests = sumOf(rounds, (one) => one.requests).toFixed(0);
  return unexpected.result(
    'single execute, errors and timeouts',
    `${requests} requests; ${String(receipts.checked)} random receipts verified from outside`,
  );
}
