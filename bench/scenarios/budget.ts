import { join } from 'node:path';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { activatePolicy, storePolicySet } from '#sql/admissions/policies';
import type { Counter } from '#protocol/counters';
import type { Db } from '#sql/db/transaction';
import { runBatches, type BatchRun } from '../harness/batch-load.js';
import { withCleanup } from '../harness/cleanup.js';
import { openBenchRegistry } from '../harness/registry.js';
import { resultOf, type Result, type RunContext, type Scenario } from '../harness/scenario.js';
import { startPrograms } from '../harness/stack.js';
import { whole } from '../harness/statistics.js';

/** Batch admission without counters, then with one counter that every item moves, and one for each run. */
export const budget: Scenario = { name: 'budget', run };

const QUICK = { warmUpSeconds: 2, seconds: 4, items: 2_500, inFlight: 15_000, checkEveryMs: 500 };
const FULL = { warmUpSeconds: 8, seconds: 30, items: 5_000, inFlight: 50_000, checkEveryMs: 1_000 };

async function run({ dir, redis, signal, quick, cleanup }: RunContext): Promise<Result[]> {
  const plan = { ...(quick ? QUICK : FULL), signal };
  const registry = await openBenchRegistry(dir, cleanup);
  return withCleanup(async (inner) => {
    const engineEnv = { MAX_QUEUED_ADMISSIONS: '200000' };
    const stack = await startPrograms(registry, { redis, engineEnv }, inner);
    const runs = { ...plan, agents: 'in runs' } as const;
    const plain = [await runBatches(stack, plan), await runBatches(stack, runs)] as const;
    await countEveryAction(registry.owner, { per: 'tenant', window: 'day' });
    const hot = await runBatches(stack, plan);
    await countEveryAction(registry.owner, { per: 'run', window: 'run' });
    return [
      budgetResult('one hot budget counter', plain[0], hot),
      budgetResult('a budget counter for each run', plain[1], await runBatches(stack, runs)),
    ];
  });
}

async function countEveryAction(sql: Db, scope: Pick<Counter, 'per' | 'window'>): Promise<void> {
  const files = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
  const set = await makePolicySet({
    ...files,
    schema: files.schema.replace(
      'budgets: {}',
      'budgets: { actions?: { before: Long, after: Long } }',
    ),
    policies: {
      ...files.policies,
      'few-actions': `forbid (principal, action, resource)
        when { context.budgets has actions && context.budgets.actions.after > 1000000000 };`,
    },
    counters: { actions: { actions: null, sum: null, ...scope } },
  });
  await storePolicySet(sql, set);
  await activatePolicy(sql, set.digest);
}

const rateOf = ({ proofs, seconds }: BatchRun): number => proofs / seconds;

function budgetResult(counter: string, plain: BatchRun, counted: BatchRun): Result {
  const { checked, wrong } = counted.checked;
  return resultOf({
    name: `batch admission with ${counter}`,
    value: rateOf(counted),
    unit: 'proofs/s',
    against: { what: 'the same batches without a counter', value: rateOf(plain) },
    note: `one tenant, one worker; ${whole(checked)} receipts checked, ${whole(wrong.length)} wrong`,
  });
}
