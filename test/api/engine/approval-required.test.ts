import { join } from 'node:path';
import { expect } from 'vitest';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { activatePolicy, storePolicySet } from '#sql/admissions/policies';
import { setApprovalTime } from '#sql/tenants/administration';
import { admissionEnvelope, outcomeEnvelope } from '../../fixtures/agent.js';
import { batchIn, BATCHES, resultsOf } from '../../fixtures/batches.js';
import { workBatches } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { TENANT } from '../../fixtures/registry.js';
import { engineTest } from './setup.js';

const PATH = '/v1/agent/admissions';
const { schema } = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
const policies = {
  permit: 'permit (principal, action, resource);',
  hold: '@requires("approval") forbid (principal, action, resource == Svc::Operation::"PAY");',
};

const it = engineTest({ rateLimit: 100_000 }).extend<{ activated: string }>({
  activated: [
    async ({ setup: { registry } }, use) => {
      const set = await makePolicySet({ schema, policies, sentences: {} });
      await storePolicySet(registry.admin, set);
      await activatePolicy(registry.admin, set.digest);
      await use(set.digest.toString('hex'));
    },
    { auto: true },
  ],
});

it('a required approval is a signed 202 with its expiry, and permits nothing', async ({
  setup,
}) => {
  await setApprovalTime(setup.registry.admin, TENANT, 60);
  const envelope = admissionEnvelope({ action: 'PAY' });
  const reply = await setup.post(PATH, envelope);
  expect(reply.status).toBe(202);
  const { receipt, ...status } = reply.json as { proof_id: string; receipt: object };
  const proofId = status.proof_id;
  expect(status).toEqual({
    schema_version: 'svc.runtime.admission_status/1.0',
    proof_id: proofId,
    state: 'approval_required',
    expires_at: expect.stringMatching(/Z$/) as string,
  });
  expect(receipt).toMatchObject({ status: 'APPROVAL_REQUIRED', registry_proof_id: proofId });
  expect(reply.headers['location']).toBe(`/v1/admissions/${proofId}`);

  const repeated = await setup.post(PATH, envelope);
  expect([repeated.status, repeated.bytes]).toEqual([202, reply.bytes]);

  const view = (await setup.get(`/v1/proofs/${proofId}`)).json as {
    aep: { accepted_at: string; decision: object; valid_until: object; evidence: object };
  };
  expect(view.aep).toMatchObject({
    decision: { effect: 'REQUIRE_APPROVAL', reasons: ['hold'] },
    evidence: { approval: null },
  });
  expect(Object.keys(view.aep.valid_until)).toEqual(['proof']);
  const { expires_at } = status as unknown as { expires_at: string };
  expect(Date.parse(expires_at) - Date.parse(view.aep.accepted_at)).toBe(60_000);

  const outcome = await setup.post(PATH, outcomeEnvelope(proofId));
  expectProblem(outcome, 422, 'parent_not_admitted');
});

it('a batch counts required approvals, also those of earlier admissions', async ({ setup }) => {
  const held = admissionEnvelope({ action: 'PAY' });
  for (const replayed of [0, 1]) {
    const items = [held, admissionEnvelope({ action: 'SHIP' })];
    const sent = await setup.post(BATCHES, items);
    await workBatches(setup.registry);
    const batchId = batchIn(sent).batch_id;
    expect((await setup.get(`/v1/batches/${batchId}`)).json).toMatchObject({
      state: 'completed',
      counts: { total: 2, admitted: 1, denied: 0, approval_required: 1, pending: 0 },
      replayed,
    });
    const [first] = await resultsOf(setup.engine, setup.key, batchId);
    expect(first).toMatchObject({
      state: 'approval_required',
      status: 202,
      receipt: { status: 'APPROVAL_REQUIRED' },
      expires_at: expect.stringMatching(/Z$/) as string,
    });
  }
});
