import { join } from 'node:path';
import { expect } from 'vitest';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { activatePolicy, type PolicyFiles, storePolicySet } from '#sql/admissions/policies';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { headersFor, issueKey } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { engineTest, type Setup } from './setup.js';

const exampleSet = (name: string) =>
  readPolicyFolder(join(packageRoot, 'examples', 'policies', name));
const files = await exampleSet('daily-limit');
const it = engineTest({ rateLimit: 100_000 });

const stored = async ({ registry }: Setup, changes: Partial<PolicyFiles> = {}): Promise<Buffer> => {
  const set = await makePolicySet({ ...files, ...changes });
  await storePolicySet(registry.admin, set);
  return set.digest;
};

const refund = (amount: string) =>
  admissionEnvelope({
    action: 'ISSUE_REFUND',
    agent: { id: 'support-1' },
    facts: { amount: { decimal: amount }, currency: 'EUR' },
  });

it('budgets of a proof are verified, disclosed and replayed', async ({ setup }) => {
  const { db, get, post, registry } = setup;
  await activatePolicy(registry.admin, await stored(setup));
  const own = headersFor(await issueKey(registry, { restriction: { agent_id: 'support-1' } }));
  const send = (body: Record<string, unknown>) => post('/v1/agent/admissions', body, own);
  const first = await send(refund('1500.00'));
  expect(first.json).toMatchObject({ status: 'ADMITTED' });
  const second = await send(refund('500.0001'));
  expectProblem(second, 403, 'policy_denied');
  expect(second.json).toMatchObject({
    reasons: ['at-most-2000-a-day'],
    detail: 'An agent refunds at most 2,000.00 EUR a day.',
  });
  const third = await send(refund('-1500.00'));
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

  const replay = async (policyDigest: Buffer) => {
    const reply = await post('/v1/proofs/replay', {
      schema_version: 'svc.verification.replay_request/1.0',
      proof_id: proofId,
      policy_digest: policyDigest.toString('hex'),
    });
    return reply.json;
  };
  const limit = files.policies['at-most-2000-a-day']!;
  const higher = await stored(setup, {
    policies: { ...files.policies, 'at-most-2000-a-day': limit.replace('20000000', '20000001') },
  });
  expect(await replay(higher)).toMatchObject({
    result: 'match',
    counterfactual: { decision: { effect: 'ADMIT', reasons: ['refunds-are-permitted'] } },
  });
  // The value of a counter with another definition is unknown.
  const counter = files.counters!['daily_refunds']!;
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
