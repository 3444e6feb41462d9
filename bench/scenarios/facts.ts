import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { apiKeyIdFrom, apiKeySecretHash, formatApiKey } from '#protocol/api-key';
import { nativeSha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { activatePolicy, storePolicySet } from '#sql/admissions/policies';
import { insertApiKey } from '#sql/tenants/api-keys';
import { requireCorrect, runBatches, type BatchRun } from '../harness/batch-load.js';
import { print } from '../harness/command.js';
import { BOUND_AGENT } from '../harness/items.js';
import { type BenchRegistry, openBenchRegistry } from '../harness/registry.js';
import { resultOf, type Result, type RunContext, type Scenario } from '../harness/scenario.js';
import { startPrograms } from '../harness/stack.js';
import { median, pairedRatio, whole } from '../harness/statistics.js';

/** Agent envelopes with facts and a key restricted to the agent, against envelopes without both. */
export const facts: Scenario = { name: 'facts', run };

const QUICK = { rounds: 1, warmUpSeconds: 1, seconds: 4, items: 1_000, inFlight: 5_000 };
const FULL = { rounds: 4, warmUpSeconds: 3, seconds: 15, items: 2_500, inFlight: 25_000 };

async function run({ dir, redis, signal, quick, cleanup }: RunContext): Promise<Result[]> {
  const { rounds, ...plan } = quick ? QUICK : FULL;
  const registry = await openBenchRegistry(dir, cleanup);
  await activateFacts(registry);
  const stack = await startPrograms(registry, { redis }, cleanup);
  const bound = { ...stack, registry: { ...registry, apiKey: await boundKey(registry) } };
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
  const [without, having]: [BatchRun[], BatchRun[]] = [[], []];
  for (let i = 0; i < rounds; i += 1) {
    without.push(await load(stack, false));
    having.push(await load(bound, true));
  }
  const cpuOf = ({ cpu }: BatchRun): number => cpu.total;
  const rateOf = ({ proofs, seconds }: BatchRun): number => proofs / seconds;
  const compared = (name: string, unit: string, of: (run: BatchRun) => number, target: object) =>
    resultOf({
      name,
      unit,
      value: median(having.map(of)),
      against: {
        what: 'the same envelopes without facts, unrestricted key',
        value: median(without.map(of)),
      },
      ratio: pairedRatio(having.map(of), without.map(of)),
      target: { ratio: target },
      note: `${String(rounds)} interleaved rounds; a new amount in each envelope`,
    });
  return [
    compared('facts and bound key: CPU per proof', 'µs', cpuOf, { atMost: 1.1 }),
    compared('facts and bound key: batch admission', 'proofs/s', rateOf, { atLeast: 0.9 }),
  ];
}

/** Activates the shipped set with two facts and a rule that reads them. */
async function activateFacts({ owner }: BenchRegistry): Promise<void> {
  const files = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
  const set = await makePolicySet({
    ...files,
    schema: files.schema.replace('facts: {}', 'facts: { amount?: decimal, currency?: String }'),
    policies: {
      ...files.policies,
      'amount-at-most-500': `forbid (principal, action, resource)
        when { context.facts has amount && context.facts.amount.greaterThan(decimal("500.00")) };`,
    },
  });
  await storePolicySet(owner, set);
  await activatePolicy(owner, set.digest);
}

async function boundKey({ owner, tenantId }: BenchRegistry): Promise<string> {
  const key = { keyId: apiKeyIdFrom(randomBytes(8)), secret: randomBytes(32) };
  await insertApiKey(owner, {
    keyId: key.keyId,
    tenantId,
    secretHash: apiKeySecretHash(nativeSha256, key.secret),
    scopes: ['admit', 'read', 'export'],
    reviewRef: 'bench',
    restriction: { agent_id: BOUND_AGENT },
  });
  return formatApiKey(key);
}
