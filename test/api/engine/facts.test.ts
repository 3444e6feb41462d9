import { join } from 'node:path';
import { expect } from 'vitest';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { type PolicyFiles, storePolicySet } from '#sql/admissions/policies';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { activateSet } from '../../fixtures/approval-world.js';
import { headersFor, issueKey } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { byId } from '../../fixtures/verify-call.js';
import { engineTest, replayOf, type Setup, verdictOn } from './setup.js';

const PATH = '/v1/agent/admissions';
const AMOUNT = { decimal: '480.00' };

const files = await readPolicyFolder(join(packageRoot, 'examples', 'policies', 'refunds'));

const refund = (facts: object) => admissionEnvelope({ action: 'ISSUE_REFUND', facts });

const it = engineTest({ rateLimit: 100_000 });

/** Activates the example set for refunds, with changes to its schema, and returns the digest. */
async function activate({ registry }: Setup, change = (schema: string) => schema): Promise<string> {
  const digest = await activateSet(registry.admin, { ...files, schema: change(files.schema) });
  return digest.toString('hex');
}

it('POST /v1/agent/admissions > accepts a fact while the set that declares it is active, and later repeats the receipt', async ({
  setup,
}) => {
  await activate(setup);
  const body = refund({ amount: AMOUNT, currency: 'EUR', vip: true });
  expectProblem(await setup.post(PATH, body), 400, 'invalid_fact');
  await activate(setup, (schema) => schema.replace('facts: {', 'facts: { vip?: Bool,'));
  const admitted = await setup.post(PATH, body);
  expect(admitted.json).toMatchObject({ status: 'ADMITTED' });
  await activate(setup);
  // A new engine has no cached policy set.
  await setup.withEngine({}, async ({ call }) => {
    const send = (fields: object) =>
      call({ path: PATH, headers: headersFor(setup.key), body: JSON.stringify(fields) });
    expectProblem(await send(refund(body['facts'] as object)), 400, 'invalid_fact');
    const repeated = await send(body);
    expect(repeated.bytes).toEqual(admitted.bytes);
    expect(repeated.headers['idempotent-replayed']).toBe('true');
  });
});

it('replay > evaluates the stored facts under the recorded policy set and under a different set', async ({
  setup,
}) => {
  await activate(setup);
  const digest = await activate(setup, (schema) =>
    schema.replace(
      'currency?: String',
      'currency?: String, @required_for("ISSUE_REFUND") order?: Long',
    ),
  );
  await activate(setup);
  const { json } = await setup.post(PATH, refund({ amount: AMOUNT, currency: 'EUR' }));
  const proof_id = json['registry_proof_id'];
  await setup.publish();
  expect(await verdictOn(setup, byId(String(proof_id)))).toMatchObject({ status: 'VALID' });
  expect((await replayOf(setup, proof_id, digest)).json).toMatchObject({
    result: 'match',
    counterfactual: {
      decision: { effect: 'DENY', reasons: ['fact.order'] },
      sentences: {
        'fact.order':
          'The fact order is missing, or the policy set does not declare it with the stated type.',
      },
    },
  });
});

const budgeted = await readPolicyFolder(join(packageRoot, 'examples', 'policies', 'daily-limit'));
const stored = async ({ registry }: Setup, changes: Partial<PolicyFiles>): Promise<Buffer> => {
  const set = await makePolicySet({ ...budgeted, ...changes });
  await storePolicySet(registry.admin, set);
  return set.digest;
};
const budgetedRefund = (amount: string) => ({
  ...refund({ amount: { decimal: amount }, currency: 'EUR' }),
  agent: { id: 'support-1' },
});

// Must run last: this test alters a row of the log.
it('budgets of a proof are verified, disclosed and replayed', async ({ setup }) => {
  const { db, get, post, registry } = setup;
  await activateSet(registry.admin, budgeted);
  const own = headersFor(await issueKey(registry, { restriction: { agent_id: 'support-1' } }));
  const send = (body: Record<string, unknown>) => post('/v1/agent/admissions', body, own);
  const first = await send(budgetedRefund('1500.00'));
  expect(first.json).toMatchObject({ status: 'ADMITTED' });
  const second = await send(budgetedRefund('500.0001'));
  expectProblem(second, 403, 'policy_denied');
  expect(second.json).toMatchObject({
    reasons: ['at-most-2000-a-day'],
    detail: 'An agent refunds at most 2,000.00 EUR a day.',
  });
  const third = await send(budgetedRefund('-1500.00'));
  expect(third.json).toMatchObject({
    reasons: ['budget.daily_refunds'],
    detail: expect.stringContaining('The counter daily_refunds cannot count this action') as string,
  });

  const proofId = String((second.json['receipt'] as Record<string, unknown>)['registry_proof_id']);
  await setup.publish();
  const { json } = await get(`/v1/proofs/${proofId}/export?disclose=budget.daily_refunds`);
  const verdict = await post('/v1/proofs/verify', json);
  const [{ day }] = await db.sql<[{ day: string }]>`
    select to_char(at at time zone 'UTC', 'YYYY-MM-DD') as day from svc.log_entry
    where proof_id = ${proofId}::uuid`;
  expect(verdict.json).toMatchObject({
    status: 'VALID',
    disclosed: {
      'budget.daily_refunds': { window: { day }, before: 15_000_000, after: 20_000_001 },
    },
  });

  const replay = async (policyDigest: Buffer) =>
    (await replayOf(setup, proofId, policyDigest.toString('hex'))).json;
  const limit = budgeted.policies['at-most-2000-a-day']!;
  const higher = await stored(setup, {
    policies: { ...budgeted.policies, 'at-most-2000-a-day': limit.replace('20000000', '20000001') },
  });
  expect(await replay(higher)).toMatchObject({
    result: 'match',
    counterfactual: { decision: { effect: 'ADMIT', reasons: ['refunds-are-permitted'] } },
  });
  // A counter has no known value under a set that defines the counter differently.
  const counter = budgeted.counters!['daily_refunds']!;
  const perTenant = await stored(setup, {
    counters: { daily_refunds: { ...counter, per: 'tenant' } },
  });
  expect(await replay(perTenant)).toMatchObject({
    counterfactual: { decision: { effect: 'DENY', reasons: ['budget.daily_refunds'] } },
  });

  await setup.byHand(
    (tx) => tx`update svc.log_entry set budgets = jsonb_set(budgets, '{daily_refunds,before}', '0')
      where proof_id = ${proofId}::uuid`,
  );
  expect(await replay(higher)).toMatchObject({ result: 'divergence' });
  expectProblem(await get(`/v1/proofs/${proofId}/export`), 500, 'integrity_failure');
});
