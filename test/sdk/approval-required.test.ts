import { join } from 'node:path';
import { expect } from 'vitest';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import {
  admitBatchHttp,
  executeIntentHttp,
  executeRequest,
  followAdmissionHttp,
  readReceiptEvidenceHttp,
} from '#sdk/index';
import { activatePolicy, storePolicySet } from '#sql/admissions/policies';
import { sdkError } from '../fixtures/sdk-error.js';
import { intent, sdkTest } from '../fixtures/sdk-world.js';

const { schema } = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
const policies = {
  permit: 'permit (principal, action, resource);',
  hold: '@requires("approval") forbid (principal, action, resource == Svc::Operation::"PAY");',
};

const it = sdkTest().extend<{ activated: null }>({
  activated: [
    async ({ world: { registry } }, use) => {
      const set = await makePolicySet({ schema, policies, sentences: {} });
      await storePolicySet(registry.admin, set);
      await activatePolicy(registry.admin, set.digest);
      await use(null);
    },
    { auto: true },
  ],
});

it('a required approval is an error with its receipt, and never an admission', async ({
  world,
}) => {
  const input = intent({ action: 'PAY' });
  const error = await sdkError(executeIntentHttp(world.options, input), 'approval_required');
  const { approval, proofId } = error;
  expect(error).toMatchObject({ status: 202, retryable: false });
  expect(approval?.receipt).toMatchObject({
    status: 'APPROVAL_REQUIRED',
    registry_proof_id: proofId,
  });
  expect(
    (await readReceiptEvidenceHttp(world.options, approval!.receipt)).evidence.entry.effect,
  ).toBe('REQUIRE_APPROVAL');
  const followed = await sdkError(
    followAdmissionHttp(world.options, { proof_id: proofId! }),
    'approval_required',
  );
  expect(followed.approval).toEqual(approval);

  const items = [executeRequest('acme', input)];
  for await (const result of admitBatchHttp(world.options, items)) {
    expect(result).toMatchObject({ state: 'approval_required', approval, replayed: true });
  }
});
