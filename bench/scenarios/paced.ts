import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { withCleanup } from '../harness/cleanup.js';
import { startCpu, type CpuShares } from '../harness/cpu.js';
import { runPaced, type PacedRun } from '../harness/paced-load.js';
import { untilIdle } from '../harness/public-api.js';
import {
  resultOf,
  UnexpectedAnswers,
  type Result,
  type RunContext,
  type Scenario,
} from '../harness/scenario.js';
import { startStack } from '../harness/stack.js';
import { percentile, whole } from '../harness/statistics.js';
import { CONNECTIONS, type ExecuteLoadResult, runExecuteLoad } from '../harness/wrk.js';

/** CPU time of the programs with each queue: idle, at fixed rates of single executions, and saturated. */
export const paced: Scenario = { name: 'paced', needs: ['wrk'], run };

const QUICK = { idleSeconds: 3, warmUpSeconds: 1, seconds: 3, saturatedSeconds: 2 };
const FULL = { idleSeconds: 30, warmUpSeconds: 5, seconds: 30, saturatedSeconds: 15 };

/** Requests per second, with the largest accepted CPU time per request in milliseconds. */
const RATES = [
  { perSecond: 50, maxCpuMs: 5 },
  { perSecond: 200, maxCpuMs: 2 },
  { perSecond: 1_000 },
] as const;

const QUEUES = ['Redis', 'PostgreSQL'] as const;

async function run(context: RunContext): Promise<Result[]> {
  const unexpected = new UnexpectedAnswers();
  const measured: PacedMeasured[] = [];
  for (const queue of QUEUES) measured.push(await measure(queue, unexpected, context));
  return pacedResults(measured, unexpected);
}

type PacedMeasured = Awaited<ReturnType<typeof measure>>;

async function measure(
  queue: (typeof QUEUES)[number],
  unexpected: UnexpectedAnswers,
  { quick, dir, redis, signal }: RunContext,
) {
  const { idleSeconds, saturatedSeconds, ...times } = quick ? QUICK : FULL;
  return withCleanup(async (cleanup) => {
    const options = queue === 'Redis' ? { redis } : {};
    const stack = await startStack(join(dir, queue), options, cleanup);
    const { engineUrl, registry, watched } = stack;
    const load = { url: engineUrl, credential: registry, watched, dir, signal };
    // The saturated load runs first, so that V8 compiles the hot code, for which the other loads are too small.
    await runExecuteLoad({ ...load, seconds: saturatedSeconds });
    const saturated = await runExecuteLoad({ ...load, seconds: saturatedSeconds });
    await untilIdle(stack, signal);
    const idleSince = startCpu(watched);
    await sleep(idleSeconds * 1000, undefined, { signal });
    const idle = idleSince(idleSeconds);
    const rates: PacedRun[] = [];
    for (const { perSecond } of RATES) {
      const paced = { ...times, perSecond, credentials: [registry], watched, unexpected, signal };
      rates.push(await runPaced(engineUrl, paced));
    }
    return { queue, idle, rates, saturated };
  });
}

function pacedResults(measured: readonly PacedMeasured[], unexpected: UnexpectedAnswers): Result[] {
  const results = measured.flatMap(({ queue, idle, rates, saturated }) => [
    resultOf({
      name: `idle, ${queue} queue: CPU`,
      value: idle.total / 10_000,
      unit: '% of a core',
      note: sharesOf(idle, 10_000, '%'),
    }),
    ...rates.flatMap(({ ms, cpu }, i) => {
      const { perSecond, ...rate } = RATES[i]!;
      const name = `single execute at ${whole(perSecond)}/s, ${queue} queue`;
      const target = 'maxCpuMs' in rate ? { value: { atMost: rate.maxCpuMs } } : null;
      return [latency(name, ms), cpuPerRequest(name, cpu, target)];
    }),
    ...saturatedResults(queue, saturated, unexpected),
  ]);
  const requests = measured.flatMap(({ rates }) => rates.flatMap(({ ms }) => ms)).length;
  return [
    ...results,
    unexpected.result(
      'single execute at fixed rates, errors and timeouts',
      `${whole(requests)} measured requests, the warm-up and the saturating load`,
    ),
  ];
}

function saturatedResults(
  queue: string,
  saturated: ExecuteLoadResult,
  unexpected: UnexpectedAnswers,
): Result[] {
  const { requests, seconds, latencies, cpu } = saturated;
  unexpected.addLoad(saturated);
  const name = `single execute, saturated, ${queue} queue`;
  const p = (percent: number): string => percentile(latencies, percent).toFixed(1);
  return [
    resultOf({
      name,
      value: requests / seconds,
      unit: 'req/s',
      note: `${String(CONNECTIONS)} connections; p50 ${p(50)} ms, p99 ${p(99)} ms`,
    }),
    cpuPerRequest(name, cpu),
  ];
}

const latency = (name: string, ms: readonly number[]): Result =>
  resultOf({
    name: `${name}: p99`,
    value: percentile(ms, 99),
    unit: 'ms',
    note: `p50 ${percentile(ms, 50).toFixed(1)} ms, from the time when each of ${whole(ms.length)} requests was due`,
  });

const cpuPerRequest = (name: string, cpu: CpuShares, target: Result['target'] = null): Result =>
  resultOf({
    name: `${name}: CPU per request`,
    value: cpu.total / 1000,
    unit: 'ms',
    target,
    note: sharesOf(cpu, 1000, 'ms'),
  });

const sharesOf = ({ micros }: CpuShares, divisor: number, unit: string): string =>
  Object.entries(micros)
    .map(([name, share]) => `${name} ${(share / divisor).toFixed(2)}`)
    .join(', ') + ` ${unit}`;
