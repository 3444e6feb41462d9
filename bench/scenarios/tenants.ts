import { runPaced, type PacedRun } from '../harness/paced-load.js';
import { createTenants } from '../harness/registry.js';
import {
  comparedWithFirst,
  interleaved,
  UnexpectedAnswers,
  type Result,
  type RunContext,
  type Scenario,
} from '../harness/scenario.js';
import { startStack } from '../harness/stack.js';
import { percentile, whole } from '../harness/statistics.js';

/** CPU time of single executions at a fixed rate, sent by one tenant, or by many in rotation. */
export const tenants: Scenario = { name: 'tenants', run };

const STEPS = [1, 10, 100, 1_000];
const PER_SECOND = 200;
const QUICK = { rounds: 1, warmUpSeconds: 1, seconds: 3 };
const FULL = { rounds: 4, warmUpSeconds: 2, seconds: 10 };
/** A discarded first round: every tenant sends requests, and the hot code gets compiled. */
const FIRST = { warmUpSeconds: 0, seconds: 10 };

async function run({ dir, redis, quick, signal, cleanup }: RunContext) {
  const { rounds, ...times } = quick ? QUICK : FULL;
  const stack = await startStack(dir, { redis }, cleanup);
  const ids = Array.from({ length: Math.max(...STEPS) }, (_, n) => `tenant-${String(n)}`);
  const all = await createTenants(stack.registry, ids);
  const unexpected = new UnexpectedAnswers();
  const load = { watched: stack.watched, perSecond: PER_SECOND, unexpected, signal };
  await runPaced(stack.engineUrl, { ...load, ...FIRST, credentials: all });
  const runs = await interleaved(
    rounds,
    STEPS.map((count) => () => {
      const credentials = all.slice(0, count);
      return runPaced(stack.engineUrl, { ...load, ...times, credentials });
    }),
  );
  return tenantsResults(runs, unexpected);
}

/**
 * Compares the cost of each number of tenants with the cost of one tenant, within each round.
 *
 * @param points the runs of each of {@link STEPS}
 */
function tenantsResults(points: readonly PacedRun[][], unexpected: UnexpectedAnswers): Result[] {
  const results = comparedWithFirst(
    points.map((runs, at) => {
      const ms = runs.flatMap((run) => run.ms);
      return {
        name: `growth: single execute, tenants: ${whole(STEPS[at]!)}`,
        costs: runs.map(({ cpu }) => cpu.total / 1000),
        note: `at ${String(PER_SECOND)}/s; p50 ${percentile(ms, 50).toFixed(1)} ms, p99 ${percentile(ms, 99).toFixed(1)} ms`,
      };
    }),
    { unit: 'ms of CPU', what: 'executions of one tenant', digits: 2 },
  );
  const answered = points.flat().flatMap(({ ms }) => ms).length;
  return [
    ...results,
    unexpected.result(
      'growth: tenants, errors and timeouts',
      `${whole(answered)} measured requests`,
    ),
  ];
}
