import { expect, it } from 'vitest';
import { admitHttp, executeIntentHttp, followAdmissionHttp } from '#sdk/index';
import { fakeEngine } from '#sdk/testing';
import { sdkError } from '../fixtures/sdk-error.js';
import { sdkTest } from '../fixtures/sdk-world.js';

const real = sdkTest();
const intent = { intent_id: 'intent-1', action: 'BOOK' };

real('the fake engine answers with the hashes of a real one', async ({ world }) => {
  const engine = fakeEngine();
  const options = { ...engine.options, tenantId: world.options.tenantId };
  const fake = await executeIntentHttp(options, intent);
  expect(await executeIntentHttp(options, intent)).toEqual(fake);
  expect(engine.requests).toHaveLength(1);
  const receipt = await executeIntentHttp(world.options, intent);
  expect({ ...fake, registry_proof_id: '', response_hash: '' }).toEqual({
    ...receipt,
    registry_proof_id: '',
    response_hash: '',
  });
});

it('the fake engine denies, requires approvals and fails as the test decides', async () => {
  const engine = fakeEngine((request) => {
    const isPayment = 'action' in request && request.action === 'PAY';
    return isPayment ? { effect: 'DENY', reason: 'limit' } : 'REQUIRE_APPROVAL';
  });
  const agent = { id: 'agent-7' };
  const admit = (action: string) => admitHttp(engine.options, { kind: 'admission', agent, action });
  const denial = await sdkError(admit('PAY'), 'policy_denied');
  expect(denial.denial?.reasons).toEqual(['limit']);
  expect((await sdkError(admit('REFUND'), 'approval_required')).approval).toBeDefined();
  engine.unavailable = true;
  const options = { ...engine.options, retry: { attempts: 1 } };
  await sdkError(executeIntentHttp(options, intent), 'unavailable');
  engine.unavailable = false;
  const proof_id = denial.denial!.receipt.registry_proof_id;
  await sdkError(followAdmissionHttp(engine.options, { proof_id }), 'not_found');
});
