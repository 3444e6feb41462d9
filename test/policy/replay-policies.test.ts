import { describe, expect, it } from 'vitest';
import type { PolicyInput } from '#protocol/policy-input';
import { makePolicySet } from '#policy/policy-set';
import { replayPolicies } from '#policy/replay';

const SCHEMA = `namespace Svc {
  entity Tenant = { environment: String };
  entity Operation;
  action admit appliesTo {
    principal: Tenant,
    resource: Operation,
    context: { environment: String, lane: String, facts: {}, budgets: {} }
  };
}`;

const INPUT: PolicyInput = {
  tenant: { tenant_id: 'acme', environment: 'sandbox' },
  environment: 'sandbox',
  lane: 'execute',
  action: 'READ',
  agent: null,
  tool: null,
  fixture: null,
  facts: {},
  approval: null,
  budgets: {},
};

const set = (policies: Record<string, string>) =>
  makePolicySet({ schema: SCHEMA, policies, sentences: {} });

describe('replayPolicies', () => {
  it('evaluates each policy set separately for any size of its cache', async () => {
    const open = replayPolicies(2);
    const ids = ['a', 'b', 'c', 'd'];
    const policies = await Promise.all(
      ids.map(async (id) => open(await set({ [id]: 'permit (principal, action, resource);' }))),
    );
    for (let round = 0; round < 3; round += 1) {
      for (const [i, policy] of policies.entries()) {
        expect(policy.decide(INPUT)).toEqual({ effect: 'ADMIT', reasons: [ids[i]] });
      }
      policies.reverse();
      ids.reverse();
    }
  });

  it('denies when a policy does not parse, does not match its schema, or fails to evaluate', async () => {
    const open = replayPolicies();
    const stored = await set({ all: 'permit (principal, action, resource);' });
    const broken = [
      'permit (principal',
      'permit (principal, action, resource) when { context.x };',
    ];
    for (const text of broken) {
      const policy = await open({
        ...stored,
        files: { ...stored.files, policies: { all: text } },
      });
      expect(policy.decide(INPUT)).toEqual({ effect: 'DENY', reasons: [] });
      expect(policy.digest).not.toBe(stored.digest.toString('hex'));
    }
    const erring = await set({
      all: 'permit (principal, action, resource);',
      errs: 'forbid (principal, action, resource) when { 9223372036854775807 + 1 == 0 };',
    });
    expect((await open(erring)).decide(INPUT)).toEqual({ effect: 'DENY', reasons: ['errs'] });
  });

  it('computes the digest from the stored texts', async () => {
    const open = replayPolicies();
    const stored = await set({ all: 'permit (principal, action, resource);' });
    expect(await open(stored)).toMatchObject({
      digest: stored.digest.toString('hex'),
      sameEngine: true,
    });
    const { schema } = stored.files;
    const otherSchema = { ...stored, files: { ...stored.files, schema: `${schema}\n` } };
    expect((await open(otherSchema)).digest).not.toBe(stored.digest.toString('hex'));
    const otherManifest = { ...stored, manifest: 'no manifest at all' };
    expect((await open(otherManifest)).digest).toBe(stored.digest.toString('hex'));
  });
});
