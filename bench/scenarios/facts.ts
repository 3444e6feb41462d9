import { setTimeout as sleep } from 'node:timers/promises';
import { activatePolicy } from '#sql/admissions/policies';
import { rateOf, requireCorrect, runBatches, type BatchRun } from '../harness/batch-load.js';
import { print } from '../harness/command.js';
import { startCpu } from '../harness/cpu.js';
import { admitOnce, AGENT_PATH } from '../harness/engine-api.js';
import { BOUND_AGENT, isDenied, newRun, requestAt } from '../harness/items.js';
import { untilIdle } from '../harness/public-api.js';
import {
  type BenchRegistry,
  insertKey,
  openBenchRegistry,
  storePolicyVariant,
} from '../harness/registry.js';
import {
  comparedRounds,
  interleaved,
  resultOf,
  type Result,
  type RunContext,
  type Scenario,
  UnexpectedAnswers,
} from '../harness/scenario.js';
import { type BenchStack, startPrograms } from '../harness/stack.js';
import { whole } from '../harness/statistics.js';

/**
 * Agent envelopes with facts, sent with a key restricted to the agent, against envelopes without facts,
 * sent with an unrestricted key.
 */
export const facts: Scenario = { name: 'facts', run };

const QUICK = { rounds: 1, warmUpSeconds: 1, seconds: 4, items: 1_000, inFlight: 5_000 };
const FULL = { rounds: 4, warmUpSeconds: 3, seconds: 15, items: 2_500, inFlight: 25_000 };
/** Numbers of concurrent callers of single admissions. */
const CALLERS = [1, 64];

type Run = Pick<BatchRun, 'proofs' | 'seconds' | 'cpu'>;
type Agents = 'with facts' | 'without facts';

async function run({ dir, redis, signal, quick, cleanup }: RunContext): Promise<Result[]> {
  const { rounds, ...plan } = quick ? QUICK : FULL;
  const registry = await openBenchRegistry(dir, cleanup);
  await activateFacts(registry);
  const stack = await startPrograms(registry, { redis }, cleanup);
  const apiKey = await insertKey(registry.owner, {
    tenantId: registry.tenantId,
    scopes: ['admit', 'read', 'export'],
    restriction: { agent_id: BOUND_AGENT },
  });
  const bound = { ...stack, registry: { ...registry, apiKey } };
  const unexpected = new UnexpectedAnswers();
  const batches = async (from: BenchStack, agents: Agents): Promise<Run> => {
    const run = await runBatches(from, { ...plan, agents, checkEveryMs: 500, signal });
    requireCorrect(run);
    print(`      ${agents}: ${whole(run.cpu.total)} µs per proof`);
    return run;
  };
  const kinds = [
    { name: 'batch admission', load: batches },
    ...CALLERS.map((callers) => ({
      name: `single admission, ${String(callers)} at a time`,
      load: (from: BenchStack, agents: Agents) =>
        admitSingles(from, { ...plan, agents, callers, unexpected, signal }),
    })),
  ];
  const loads = kinds.flatMap(({ load }) =>
    (
      [
        [bound, 'with facts'],
        [stack, 'without facts'],
      ] as const
    ).map(([from, agents]) => async () => {
      // Unfinished work of a load would slow the next load.
      await untilIdle(stack, signal);
      return load(from, agents);
    }),
  );
  const runs = await interleaved(rounds, loads);
  return [
    ...kinds.flatMap(({ name }, at) => results(name, runs[2 * at]!, runs[2 * at + 1]!)),
    unexpected.result('facts and bound key: single admission, errors', 'all single admissions'),
  ];
}

function results(kind: string, having: readonly Run[], without: readonly Run[]): Result[] {
  const name = `facts and bound key: ${kind}`;
  const what = 'the same envelopes without facts, unrestricted key';
  const note = `${String(having.length)} interleaved rounds; 50,000 different amounts`;
  const compared = (of: (run: Run) => number) =>
    comparedRounds(having.map(of), what, without.map(of));
  const cpu = compared((one) => one.cpu.total);
  const target = { ratio: { atMost: 1.1 } };
  return [
    resultOf({ name: `${name}, CPU per proof`, unit: 'µs', ...cpu, target, note }),
    resultOf({
      name,
      unit: 'proofs/s',
      ...compared(rateOf),
      target: { ratio: { atLeast: 0.9 } },
      note,
    }),
  ];
}

/** Runs callers, each of which sends its next admission after the answer to the previous one. */
async function admitSingles(
  { engineUrl, registry, watched }: BenchStack,
  options: {
    agents: Agents;
    callers: number;
    warmUpSeconds: number;
    seconds: number;
    unexpected: UnexpectedAnswers;
    signal: AbortSignal;
  },
): Promise<Run> {
  const { agents, callers, seconds, signal, unexpected, warmUpSeconds } = options;
  const source = { tenantId: registry.tenantId, run: newRun(), agents };
  const stopping = new AbortController();
  let [next, proofs] = [0, 0];
  const call = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      const n = next++;
      if (isDenied(n)) continue;
      const body = JSON.stringify(requestAt(source, n));
      if ((await admitOnce(engineUrl + AGENT_PATH, registry, body, unexpected)) !== null) proofs++;
    }
  };
  const calling = Promise.all(Array.from({ length: callers }, call));
  try {
    await sleep(warmUpSeconds * 1000, undefined, { signal });
    const [before, from, cpuSince] = [proofs, performance.now(), startCpu(watched)];
    await sleep(seconds * 1000, undefined, { signal });
    const [admitted, to] = [proofs - before, performance.now()];
    return { proofs: admitted, seconds: (to - from) / 1000, cpu: cpuSince(admitted) };
  } finally {
    stopping.abort();
    await calling;
  }
}

/** Activates the shipped set with two facts and a rule that reads them. */
async function activateFacts({ owner }: BenchRegistry): Promise<void> {
  const digest = await storePolicyVariant(owner, {
    declared: ['facts: {}', 'facts: { amount?: decimal, currency?: String }'],
    policies: {
      'amount-at-most-500': `forbid (principal, action, resource)
        when { context.facts has amount && context.facts.amount.greaterThan(decimal("500.00")) };`,
    },
  });
  await activatePolicy(owner, digest);
}
