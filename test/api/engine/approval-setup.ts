import { join } from 'node:path';
import { expect } from 'vitest';
import { readPolicyFolder } from '#policy/policy-set';
import type { Approval } from '#protocol/schemas/approvals';
import { packageRoot } from '#runtime/process/files';
import type { PolicyFiles } from '#sql/admissions/policies';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { activateSet } from '../../fixtures/approval-world.js';
import { newApprover } from '../../fixtures/approvals.js';
import type { Reply } from '../../fixtures/engine.js';
import { engineTest, type Setup } from './setup.js';

export const AGENT = '/v1/agent/admissions';
export const PATH = '/v1/approvals';
export const { schema } = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
export const PERMIT = 'permit (principal, action, resource);';
export const HOLD =
  '@requires("approval") forbid (principal, action, resource == Svc::Operation::"PAY");';

export interface Pending {
  envelope: Record<string, unknown>;
  proof_id: string;
  aep_hash: string;
}

interface SecondAep {
  decision: object;
  evidence: object;
  policy: { digest: string };
}

/** Tests of approvals, with an approver and a policy set that requires an approval of `PAY`. */
export function approvalTest() {
  const it = engineTest({ rateLimit: 100_000 });
  const setup = {} as Setup;
  const approver = newApprover();

  it.beforeAll(async ({ setup: opened }) => {
    Object.assign(setup, opened);
    const sentences = { hold: 'A payment needs an approval.' };
    await activate({ permit: PERMIT, hold: HOLD }, { sentences });
    await setup.post('/v1/approvers', approver.registration);
  });

  async function activate(
    policies: Record<string, string>,
    changes: Partial<PolicyFiles> = {},
  ): Promise<void> {
    await activateSet(setup.registry.admin, { schema, policies, sentences: {}, ...changes });
  }

  /** Sends an admission that requires an approval. */
  const held = (fields: Record<string, unknown> = {}): Promise<Pending> =>
    heldBy(admissionEnvelope({ action: 'PAY', ...fields }));

  async function heldBy(
    envelope: Record<string, unknown>,
    headers: Record<string, string> = {},
  ): Promise<Pending> {
    const reply = await setup.post(AGENT, envelope, headers);
    expect(reply.json).toMatchObject({ state: 'approval_required' });
    return { envelope, ...(await shown(String(reply.json['proof_id']))) };
  }

  async function shown(proof_id: string) {
    const { json } = await setup.get(`/v1/proofs/${proof_id}`);
    return { proof_id, aep_hash: (json['log_entry'] as Pending).aep_hash };
  }

  const about = ({ proof_id, aep_hash }: Pending) => ({ proof_id, aep_hash });
  const send = (approval: Approval): Promise<Reply> => setup.post(PATH, { ...approval });

  /** Waits for the second decision that an accepted approval caused, and returns its signed AEP. */
  async function secondOf(reply: Reply) {
    expect(reply.status).toBe(202);
    const proof_id = String(reply.json['proof_id']);
    const stateOf = async () => (await setup.get(`/v1/admissions/${proof_id}`)).status;
    await expect.poll(stateOf).not.toBe(202);
    const { json } = await setup.get(`/v1/proofs/${proof_id}`);
    return { proof_id, aep: json['aep'] as SecondAep };
  }

  return { it, setup, approver, activate, held, heldBy, shown, about, send, secondOf };
}
