import { join } from 'node:path';
import { expect, it } from 'vitest';
import { checkPolicyTexts, whyNotActivate } from '#policy/check';
import { preparePolicyEngine, type PolicyEngine } from '#policy/decide';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import type { PolicyInput } from '#protocol/policy-input';
import { packageRoot } from '#runtime/process/files';
import { policyInput } from '../fixtures/policy-input.js';

const { schema } = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
const PERMIT = 'permit (principal, action, resource == Svc::Operation::"PAY");';
const HOLD = '@requires("approval") forbid (principal, action, resource);';
const OVERFLOW = 'when { 9223372036854775807 + 1 == 0 }';

const input = (approved: boolean, action = 'PAY'): PolicyInput =>
  policyInput({
    action,
    approval: approved ? { approver: 'ops-lead', registration_hash: '11'.repeat(32) } : null,
  });

const setOf = (policies: Record<string, string>) =>
  makePolicySet({ schema, policies, sentences: {} });

/** The decisions without and with an approval. */
async function decisions(policies: Record<string, string>, action?: string) {
  const engine: PolicyEngine = await preparePolicyEngine(await setOf(policies));
  return [false, true].map((approved) => engine.decide(input(approved, action)));
}

const DENY = (...reasons: string[]) => ({ effect: 'DENY', reasons });
const ADMIT = (...reasons: string[]) => ({ effect: 'ADMIT', reasons });

it('a forbid with @requires("approval") requires an approval, which waives the forbid', async () => {
  const held = { effect: 'REQUIRE_APPROVAL', reasons: ['hold', 'hold-too'] };
  const policies = { permit: PERMIT, hold: HOLD, 'hold-too': HOLD };
  expect(await decisions(policies)).toEqual([held, ADMIT('permit')]);
});

it.each<[what: string, policies: Record<string, string>, expected: object[], action?: string]>([
  [
    'no approval is required when only other policies deny',
    {
      permit: PERMIT,
      never: 'forbid (principal, action, resource);',
      hold: `${HOLD.slice(0, -1)} when { false };`,
    },
    [DENY('never'), DENY('never')],
  ],
  [
    'another forbid denies with and without an approval',
    { permit: PERMIT, hold: HOLD, never: 'forbid (principal, action, resource);' },
    [DENY('hold', 'never'), DENY('never')],
  ],
  [
    'an action that no policy permits is denied with and without an approval',
    { permit: PERMIT, hold: HOLD },
    [DENY('hold'), DENY()],
    'SHIP',
  ],
  [
    'a policy that errs denies with and without an approval',
    { permit: PERMIT, hold: HOLD, errs: `forbid (principal, action, resource) ${OVERFLOW};` },
    [DENY('errs'), DENY('errs')],
  ],
  [
    'a forbid with @requires("approval") denies when it errs, unless an approval waives it',
    { permit: PERMIT, hold: `${HOLD.slice(0, -1)} ${OVERFLOW};` },
    [DENY('hold'), ADMIT('permit')],
  ],
])('%s', async (_, policies, expected, action) => {
  expect(await decisions(policies, action)).toEqual(expected);
});

it.each([
  ['on a permit', 'use @requires', '@requires("approval") permit'],
  ['with another value', 'use @requires', '@requires("aproval") forbid'],
  ['without a value', 'use @requires', '@requires forbid'],
  [
    'misspelled',
    'unknown annotation @require: did you mean @requires?',
    '@require("approval") forbid',
  ],
])('@requires %s is an error of the policy set', async (_, why, rule) => {
  const policies = { permit: PERMIT, wrong: `${rule} (principal, action, resource);` };
  const problem = { file: 'wrong.cedar', severity: 'error' };
  expect(await checkPolicyTexts({ schema, policies })).toMatchObject([problem]);
  expect(await whyNotActivate(await setOf(policies))).toContain(`wrong.cedar: ${why}`);
});
