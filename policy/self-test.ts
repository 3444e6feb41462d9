import type { PolicyInput } from '#protocol/policy-input';
import type { Effect } from '#protocol/status';
import { preparePolicyEngine } from './decide.js';
import { inputSchema } from './input-schema.js';
import { makePolicySet } from './policy-set.js';

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

const HELD = { ...PROBE, action: 'HELD' };
const APPROVAL = { approver: 'self-test', registration_hash: '0'.repeat(64) };

const POLICIES = {
  'permits-all': 'permit (principal, action, resource);',
  'forbids-one': 'forbid (principal, action, resource == Svc::Operation::"FORBIDDEN");',
  'holds-one': `@requires("approval")
    forbid (principal, action, resource == Svc::Operation::"HELD");`,
  'errs-on-one': `forbid (principal, action, resource == Svc::Operation::"ERRS")
    when { 9223372036854775807 + 1 == 0 };`,
};

/** Checks at start that this process decides known requests correctly. @throws Error otherwise */
export async function policySelfTest(): Promise<void> {
  const files = { schema: await inputSchema(), policies: POLICIES, sentences: {} };
  const engine = await preparePolicyEngine(await makePolicySet(files));
  const expected: [string, PolicyInput, Effect][] = [
    ['an allowed request', PROBE, 'ADMIT'],
    ['a forbidden request', { ...PROBE, action: 'FORBIDDEN' }, 'DENY'],
    ['a forbid whose evaluation fails', { ...PROBE, action: 'ERRS' }, 'DENY'],
    ['a request that needs an approval', HELD, 'REQUIRE_APPROVAL'],
    ['an approved request', { ...HELD, approval: APPROVAL }, 'ADMIT'],
    ['a request outside the schema', { ...PROBE, tool: 1 as unknown as string }, 'DENY'],
  ];
  for (const [what, input, effect] of expected) {
    const decision = engine.decide(input);
    if (decision.effect !== effect) {
      throw new Error(`${what} was decided ${decision.effect}, not ${effect}`);
    }
  }
}
