import { runPaced, type PacedRun } from '../harness/paced-load.js';
import { createTenants } from '../harness/registry.js';
import {
  resultOf,
  UnexpectedAnswers,
  type Result,
  type Scenario,
  type RunContext,
} from '../harness/scenario.js';
import { startStack, UNLIMITED, watchedOf } from '../harness/stack.js';
import { median, pairedRatio, percentile, spread, whole } from '../harness/statistics.js';

/** CPU time of single executions at a fixed rate, sent by one tenant or by many in turn. */
export const tenants: Scenario = { name: 'tenants', run };

const STEPS = [1, 10, 100, 1_000];
const PER_SECOND = 200;
const QUICK = { rounds: 1, warmUpSeconds: 1, seconds: 3 };
const FULL = { rounds: 4, warmUpSeconds: 2, seconds: 10 };
/** Until every tenant has sent requests, and the hot code is compiled. */
const FIRST = { warmUpSeconds: 0, seconds: 10 };

/** Rounds of one number of tenants. */
export interface TenantsPoint {
  tenants: number;
  rounds: PacedRun[];
}

async function run({ dir, redisUrl, redisPid, quick, signal, cleanup }: RunContext) {
  const { rounds, ...times } = quick ? QUICK : FULL;
  const stack = await startStack(dir, { redisUrl, engineEnv: UNLIMITED }, cleanup);
  const ids = Array.from({ length: Math.max(...STEPS) }, (_, n) => `tenant-${String(n)}`);
  const all = await createTenants(stack.registry, ids);
  const unexpected = new UnexpectedAnswers();
  const watched = watchedOf(stack, redisPid);
  const load = { watched, perSecond: PER_SECOND, unexpected, signal };
  await runPaced(stack.engineUrl, { ...load, ...FIRST, credentials: all });
  const points = STEPS.map((count): TenantsPoint => ({ tenants: count, rounds: [] }));
  for (let i = 0; i < rounds; i += 1) {
    for (const point of points) {
      const credentials = all.slice(0, point.tenants);
      point.rounds.push(await runPaced(stack.engineUrl, { ...load, ...times, credentials }));
    }
  }
  return tenantsResults(points, unexpected);
}

/** Largest accepted cost relative to one tenant. */
const MAX_RATIO = 1.25;

/** Compares each number of tenants with one tenant, round by round. @param points one tenant first */
export function tenantsResults(
  points: readonly TenantsPoint[],
  unexpected: UnexpectedAnswers,
): Result[] {
  const costsOf = ({ rounds }: TenantsPoint): number[] => rounds.map(({ cpu }) => cpu.total / 1000);
  const [one] = points;
  if (one === undefined) throw new Error('nothing was measured');
  const results = points.map((point) => {
    const costs = costsOf(point);
    const ms = point.rounds.flatMap((round) => round.ms);
    return resultOf({
      name: `growth: single execute, tenants: ${whole(point.tenants)}`,
      value: median(costs),
      unit: 'ms of CPU',
      ...(point !== one && {
        against: { what: 'the same with one tenant', value: median(costsOf(one)) },
        ratio: pairedRatio(costs, costsOf(one)),
        target: { ratio: { atMost: MAX_RATIO } },
      }),
      note:
        `median of ${String(costs.length)} interleaved rounds (${spread(costs, 2)}) at ${String(PER_SECOND)}/s; ` +
        `p50 ${percentile(ms, 50).toFixed(1)} ms, p99 ${percentile(ms, 99).toFixed(1)} ms`,
    });
  });
  const answered = points.flatMap(({ rounds }) => rounds.flatMap(({ ms }) => ms)).length;
  return [
    ...results,
    unexpected.result(
      'growth: tenants, errors and timeouts',
      `${whole(answered)} measured requests`,
    ),
  ];
}
