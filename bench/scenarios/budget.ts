import { activatePolicy } from '#sql/admissions/policies';
import type { Counter } from '#protocol/policy-input';
import type { Db } from '#sql/db/transaction';
import { rateOf, requireCorrect, runBatches, type BatchRun } from '../harness/batch-load.js';
import { openBenchRegistry, storePolicyVariant } from '../harness/registry.js';
import {
  comparedRounds,
  interleaved,
  resultOf,
  type Result,
  type RunContext,
  type Scenario,
} from '../harness/scenario.js';
import { startPrograms } from '../harness/stack.js';
import { spread, sumOf, whole } from '../harness/statistics.js';

/**
 * Batch admission with a counter of all items, or with a counter for each run, compared with batches
 * without a counter.
 */
export const budget: Scenario = { name: 'budget', run };

const QUICK = {
  rounds: 1,
  warmUpSeconds: 2,
  seconds: 4,
  items: 2_500,
  inFlight: 15_000,
  checkEveryMs: 500,
};
const FULL = {
  rounds: 4,
  warmUpSeconds: 4,
  seconds: 15,
  items: 5_000,
  inFlight: 50_000,
  checkEveryMs: 1_000,
};

const VARIANTS = [
  { counter: 'one hot budget counter', scope: { per: 'tenant', window: 'day' }, agents: undefined },
  {
    counter: 'a budget counter for each run',
    scope: { per: 'run', window: 'run' },
    agents: 'in runs',
  },
] as const;

async function run({ dir, redis, signal, quick, cleanup }: RunContext): Promise<Result[]> {
  const { rounds, ...plan } = quick ? QUICK : FULL;
  const settings = { MAX_QUEUED_ADMISSIONS: '200000' };
  const registry = await openBenchRegistry(dir, cleanup, settings);
  const none = await storePolicyVariant(registry.owner, {});
  const stack = await startPrograms(registry, { redis }, cleanup);
  const loads: (() => Promise<BatchRun>)[] = [];
  for (const { scope, agents } of VARIANTS) {
    for (const digest of [none, await storeCounting(registry.owner, scope)]) {
      loads.push(async () => {
        await activatePolicy(registry.owner, digest);
        const run = await runBatches(stack, { ...plan, agents, signal });
        requireCorrect(run);
        return run;
      });
    }
  }
  const runs = await interleaved(rounds, loads);
  return VARIANTS.map(({ counter }, at) => budgetResult(counter, runs[2 * at]!, runs[2 * at + 1]!));
}

/** Stores the shipped set with a counter of actions in this scope; returns the digest of the set. */
const storeCounting = (sql: Db, scope: Pick<Counter, 'per' | 'window'>): Promise<Buffer> =>
  storePolicyVariant(sql, {
    declared: ['budgets: {}', 'budgets: { actions?: { before: Long, after: Long } }'],
    policies: {
      'few-actions': `forbid (principal, action, resource)
        when { context.budgets has actions && context.budgets.actions.after > 1000000000 };`,
    },
    counters: { actions: { actions: null, sum: null, ...scope } },
  });

function budgetResult(counter: string, plain: BatchRun[], counted: BatchRun[]): Result {
  const [rates, plainRates] = [counted.map(rateOf), plain.map(rateOf)];
  const checked = sumOf(counted, (one) => one.checked.checked);
  return resultOf({
    name: `batch admission with ${counter}`,
    unit: 'proofs/s',
    ...comparedRounds(rates, 'the same batches without a counter', plainRates),
    note:
      `one tenant, one worker; median of ${String(counted.length)} interleaved rounds: ${spread(rates)}, without ` +
      `${spread(plainRates)}; ${whole(checked)} receipts checked, none wrong`,
  });
}
