import type { PolicyInput } from '#protocol/policy-input';
import { preparePolicyEngine } from './decide.js';
import { inputSchema } from './input-schema.js';
import { makePolicySet } from './policy-set.js';

/** The policy engine decides a known case wrongly, so this process must not decide. */
export class PolicySelfTestError extends Error {
  override readonly name = 'PolicySelfTestError';
}

const PROBE: PolicyInput = {
  tenant: { tenant_id: 'self-test', environment: 'sandbox' },
  environment: 'sandbox',
  lane: 'execute',
  action: 'ALLOWED',
  agent: null,
  tool: null,
  fixture: null,
  facts: {},
  approval: null,
  budgets: {},
};

const POLICIES = {
  'permits-all': 'permit (principal, action, resource);',
  'forbids-one': 'forbid (principal, action, resource == Svc::Operation::"FORBIDDEN");',
  'errs-on-one': `forbid (principal, action, resource == Svc::Operation::"ERRS")
    when { 9223372036854775807 + 1 == 0 };`,
};

/**
 * Proves at start that this process denies a forbidden request, one whose `forbid` errs, and one
 * outside the schema; and that it admits an allowed one.
 *
 * @throws PolicySelfTestError
 */
export async function policySelfTest(): Promise<void> {
  const files = { schema: await inputSchema(), policies: POLICIES, sentences: {} };
  const engine = await preparePolicyEngine(await makePolicySet(files));
  const expected: [string, PolicyInput, 'ADMIT' | 'DENY'][] = [
    ['an allowed request', PROBE, 'ADMIT'],
    ['a forbidden request', { ...PROBE, action: 'FORBIDDEN' }, 'DENY'],
    ['a forbid that errs', { ...PROBE, action: 'ERRS' }, 'DENY'],
    ['a request outside the schema', { ...PROBE, tool: 1 as unknown as string }, 'DENY'],
  ];
  for (const [what, input, effect] of expected) {
    const decision = engine.decide(input);
    if (decision.effect !== effect) {
      throw new PolicySelfTestError(`${what} was decided ${decision.effect}, not ${effect}`);
    }
  }
}
