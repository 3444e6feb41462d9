import { setTimeout as sleep } from 'node:timers/promises';
import { activatePolicy } from '#sql/admissions/policies';
import { rateOf, requireCorrect, runBatches, type BatchRun } from '../harness/batch-load.js';
import { print } from '../harness/command.js';
import { startCpu } from '../harness/cpu.js';
import { admitOnce, AGENT_PATH } from '../harness/engine-api.js';
import { BOUND_AGENT, isDenied, type ItemSource, newRun, requestAt } from '../harness/items.js';
import { untilIdle } from '../harness/public-api.js';
import {
  type BenchRegistry,
  insertKey,
  openBenchRegistry,
  storePolicyVariant,
} from '../harness/registry.js';
import {
  comparedRounds,
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
  const load = async (from: typeof stack, withFacts: boolean): Promise<BatchRun> => {
    const run = await runBatches(from, {
      ...plan,
      agents: withFacts ? 'with facts' : 'without facts',
      checkEveryMs: 500,
      signal,
    });
    requireCorrect(run);
    print(`      ${withFacts ? 'with' : 'without'} facts: ${whole(run.cpu.total)} µs per proof`);
    return run;
  };
  const unexpected = new UnexpectedAnswers();
  const [without, having]: [BatchRun[], BatchRun[]] = [[], []];
  const singles = CALLERS.map((callers): Singles => ({ callers, without: [], having: [] }));
  for (let i = 0; i < rounds; i += 1) {
    // Alternates the order, because unfinished work of a batch run slows the next run.
    if (i % 2 === 0) without.push(await load(stack, false));
    having.push(await load(bound, true));
    if (i % 2 === 1) without.push(await load(stack, false));
    for (const { callers, ...runs } of singles) {
      const options = { ...plan, callers, unexpected, signal };
      await untilIdle(stack, signal);
      runs.without.push(await admitSingles(stack, { ...options, agents: 'without facts' }));
      await untilIdle(stack, signal);
      runs.having.push(await admitSingles(bound, { ...options, agents: 'with facts' }));
    }
  }
  const compared = (
    name: string,
    unit: string,
    of: (run: Run) => number,
    target: object,
    [having, without]: readonly [Run[], Run[]],
  ): Result =>
    resultOf({
      name,
      unit,
      ...comparedRounds(
        having.map(of),
        'the same envelopes without facts, unrestricted key',
        without.map(of),
      ),
      target: { ratio: target },
      note: `${String(rounds)} interleaved rounds; 50,000 different amounts`,
    });
  return [
    ...[
      { name: 'batch admission', having, without },
      ...singles.map(({ callers, ...runs }) => ({
        name: `single admission, ${String(callers)} at a time`,
        ...runs,
      })),
    ].flatMap(({ name, having, without }) => {
      const runs = [having, without] as const;
      const named = `facts and bound key: ${name}`;
      return [
        compared(`${named}, CPU per proof`, 'µs', ({ cpu }) => cpu.total, { atMost: 1.1 }, runs),
        compared(named, 'proofs/s', rateOf, { atLeast: 0.9 }, runs),
      ];
    }),
    unexpected.result('facts and bound key: single admission, errors', 'all single admissions'),
  ];
}

type Run = Pick<BatchRun, 'proofs' | 'seconds' | 'cpu'>;
type Singles = { callers: number } & Record<'without' | 'having', Run[]>;

/** Runs callers, each of which sends its next admission after the answer to the previous one. */
async function admitSingles(
  { engineUrl, registry, watched }: BenchStack,
  options: Required<Pick<ItemSource, 'agents'>> & {
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
