import { describe, expect, it } from 'vitest';
import { join } from 'node:path';
import { preparePolicyEngine, IntakeMismatchError, readRequest } from '#policy/decide';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { replayPolicies } from '#policy/replay';
import { subjectOf } from '#protocol/aep';
import type { JsonValue } from '#protocol/json';
import { aepSubjectSchema } from '#protocol/schemas/aep';
import { packageRoot } from '#runtime/process/files';
import { type PinnedIntake, policyInputOf } from '#sql/proofs/rebuild-aep';
import { admissionEnvelope, outcomeEnvelope } from '../fixtures/agent.js';
import { executeBody } from '../fixtures/engine.js';
import { TENANT } from '../fixtures/registry.js';

const PARENT = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';

function intake(overrides: Partial<PinnedIntake> = {}): PinnedIntake {
  return {
    proofId: PARENT,
    tenantNo: 1,
    tenantId: TENANT,
    lane: 2,
    environment: 'sandbox',
    request: Buffer.alloc(0),
    requestHash: Buffer.alloc(32),
    acceptedAt: 0,
    seed: Buffer.alloc(32),
    policyDigest: Buffer.alloc(32),
    fixtureHash: null,
    validity: { proof: null, certificate: null, passport: null, trust: null },
    bound: false,
    approval: null,
    ...overrides,
  };
}

const read = (body: Record<string, unknown>, overrides: Partial<PinnedIntake> = {}) => {
  const pinned = intake(overrides);
  const request = readRequest(pinned, body as JsonValue);
  const subject = subjectOf(request, pinned.bound);
  expect(aepSubjectSchema.parse(subject)).toEqual(subject);
  return { subject, policyInput: policyInputOf(pinned, request) };
};

const common = {
  tenant: { tenant_id: TENANT, environment: 'sandbox' },
  environment: 'sandbox',
  facts: {},
  approval: null,
  budgets: {},
};

it('admission envelope > puts agent and action into the AEP, and only policy-relevant fields into the policy input', () => {
  const facts = { amount: { decimal: '480.00' } };
  const body = admissionEnvelope({ parent_proof_id: PARENT, facts });
  const { subject, policyInput } = read(body, { bound: true });
  const agent = { id: 'agent-7', framework: 'langgraph', bound: true };
  expect(subject).toEqual({
    kind: 'admission',
    agent,
    action: 'BOOK_RESERVATION',
    tool: 'reservations.create',
    parent_proof_id: PARENT,
  });
  expect(policyInput).toEqual({
    ...common,
    lane: 'agent',
    action: 'BOOK_RESERVATION',
    agent,
    tool: 'reservations.create',
    fixture: null,
    facts,
  });
});

it('outcome envelope > is admitted under every policy set, unlike an action that is named like an outcome', async () => {
  const { schema } = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
  const rules = {
    'known-tools': `forbid (principal, action, resource)
      unless { context has tool && ["search"].contains(context.tool) };`,
    all: 'permit (principal, action, resource);',
  };
  for (const policies of [rules, {}]) {
    const stored = await makePolicySet({ schema, policies, sentences: {} });
    const engine = await preparePolicyEngine(stored);
    const replayed = await replayPolicies()(stored);
    for (const { decide } of [engine, replayed]) {
      const outcome = read(outcomeEnvelope(PARENT)).policyInput;
      expect(decide(outcome)).toEqual({ effect: 'ADMIT', reasons: [] });
      const action = read(admissionEnvelope({ action: 'RECORD_OUTCOME' })).policyInput;
      expect(decide(action).effect).toBe('DENY');
    }
  }
});

it('execute request > is parsed only by the schema of its own request type', () => {
  expect(read(executeBody({ intent_id: 'i' }), { lane: 1 }).subject).toEqual({
    kind: 'execute',
    intent_id: 'i',
    action: 'BOOK_RESERVATION',
  });
  expect(() => read(executeBody())).toThrow();
  expect(() => read(admissionEnvelope(), { lane: 1 })).toThrow();
});

describe('accepted request', () => {
  it('is not committed for a tenant other than the one that the request names', () => {
    const other = { tenantId: 'other' };
    expect(() => read(admissionEnvelope(), other)).toThrow(IntakeMismatchError);
    expect(() => read(outcomeEnvelope(PARENT), other)).toThrow(IntakeMismatchError);
    expect(() => read(executeBody(), { ...other, lane: 1 })).toThrow(IntakeMismatchError);
  });

  it('stays pending for a newer worker version when its request type is unknown', () => {
    expect(() => read(executeBody(), { lane: 3 as 1 })).toThrow('does not know request type 3');
  });
});
