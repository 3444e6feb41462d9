import { describe, expect, it } from 'vitest';
import { makePolicySet } from '#policy/policy-set';
import { replayPolicies } from '#policy/replay';
import { policyInput } from '../fixtures/policy-input.js';

const SCHEMA = `namespace Svc {
  entity Tenant = { environment: String };
  entity Operation;
  action admit appliesTo {
    principal: Tenant,
    resource: Operation,
    context: { environment: String, lane: String, facts: {}, budgets: {} }
  };
}`;

const INPUT = policyInput();

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
});
