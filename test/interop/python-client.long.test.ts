import { generateKeyPairSync } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { readPolicyFolder } from '#policy/policy-set';
import { formatTime } from '#protocol/time';
import { packageRoot } from '#runtime/process/files';
import {
  createApproverRegistration,
  type EngineOptions,
  listProofsHttp,
  readApprovalRequest,
  signApproval,
  submitApproval,
} from '#sdk/index';
import { addApprover } from '#sql/lifecycle/approvers';
import { openPublicStack, type PublicStack } from '../e2e/public-statuses/stack.js';
import { activateSet } from '../fixtures/approval-world.js';
import { issueKey } from '../fixtures/engine.js';
import { hasPython, startPython } from '../fixtures/python.js';
import { TENANT } from '../fixtures/registry.js';
import { ORIGIN } from '../fixtures/snapshot.js';

it.runIf(hasPython)(
  'the Python package admits, verifies and gates tools against the running service',
  async () => {
    const stack = await openPublicStack(100);
    onTestFinished(() => stack.close());
    const { registry, engine } = stack;
    await activateRules(registry);
    const apiKey = await issueKey(registry, { scopes: ['admin'] });
    const options = { engineUrl: engine.url, apiKey, tenantId: TENANT };
    const stopping = new AbortController();
    const serving = serve(stack, options, stopping.signal);

    const testing = startPython(
      ['-m', 'pytest', '-q', '-p', 'no:cacheprovider', 'tests/live'],
      '',
      {
        SVC_ENGINE_URL: engine.url,
        SVC_PUBLIC_URL: stack.urlOf('directory'),
        SVC_TENANT_ID: TENANT,
        SVC_API_KEY: apiKey,
        SVC_TEST_PINS: JSON.stringify({
          aep_keys: [toBase64Url(registry.admit.signer.publicKey)],
          log_vkey: stack.logVkey,
          log_origin: ORIGIN,
        }),
      },
    ).finally(() => stopping.abort());

    const [output] = await Promise.all([testing, serving]);
    expect(output).toMatch(/^\d+ passed in /m);
  },
  300_000,
);

/** Forbids `NEVER`, requires an approval for `PAY`, and permits every other action. */
async function activateRules({ admin }: PublicStack['registry']): Promise<void> {
  const { schema } = await readPolicyFolder(join(packageRoot, 'examples/policies/approval'));
  const policies = {
    permit: 'permit (principal, action, resource);',
    never: 'forbid (principal, action, resource == Svc::Operation::"NEVER");',
    hold: '@requires("approval") forbid (principal, action, resource == Svc::Operation::"PAY");',
  };
  await activateSet(admin, { schema, policies, sentences: {} });
}

/** Publishes admitted proofs, and approves every request. */
async function serve(
  stack: PublicStack,
  options: EngineOptions,
  signal: AbortSignal,
): Promise<void> {
  const { registry } = stack;
  const { privateKey: key } = generateKeyPairSync('ed25519');
  const privateKey = key.export({ format: 'pem', type: 'pkcs8' }) as string;
  const named = { tenantId: TENANT, approver: 'ops-lead', privateKey };
  const registration = await createApproverRegistration(named);
  await addApprover(registry.admin, registration);
  const apiKey = await issueKey(registry, { scopes: ['approve'] });
  const decided = new Set<string>();
  while (!signal.aborted) {
    for await (const { proof_id } of listProofsHttp(options, { effect: 'REQUIRE_APPROVAL' })) {
      if (decided.has(proof_id)) continue;
      decided.add(proof_id);
      const subject = await readApprovalRequest({ ...options, apiKey }, { proof_id });
      const approval = {
        proof_id,
        aep_hash: subject.aepHash,
        decision: 'approve' as const,
        expires_at: formatTime(Date.now() + 60_000),
      };
      await submitApproval(
        { ...options, apiKey },
        await signApproval({ privateKey, registration }, approval),
      );
    }
    await stack.publish();
    await sleep(200);
  }
}
