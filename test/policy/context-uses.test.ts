import { expect, it } from 'vitest';
import { contextUses, usedText } from '#policy/cedar-context';
import { evaluate, preparePolicyEngine, preparse } from '#policy/decide';
import { makePolicySet } from '#policy/policy-set';
import type { PolicyInput } from '#protocol/policy-input';
import { shippedPolicy } from '#programs/shipped-policy';
import { policyInput } from '../fixtures/policy-input.js';

const { files } = await shippedPolicy();
const schema = files.schema
  .replace(
    'facts: {}',
    'facts: { amount?: decimal, constructor?: String, n?: Long, name?: String, set?: Set<String> }',
  )
  .replace('budgets: {}', 'budgets: { spent?: { before: Long, after: Long } }');
const counters = {
  spent: { actions: null, sum: null, per: 'tenant', window: 'day' },
} as const;

/** A set that forbids an action when the condition is true. */
async function setOf(condition: string) {
  const policies = {
    all: 'permit (principal, action, resource);',
    some: `forbid (principal, action, resource) when { ${condition} };`,
  };
  const set = { schema, policies, sentences: {}, counters };
  return { engine: await preparePolicyEngine(await makePolicySet(set)), set };
}

const agentInput = (parts: Partial<PolicyInput>): PolicyInput =>
  policyInput({
    lane: 'agent',
    agent: { id: 'a', framework: null, bound: false },
    budgets: { spent: { before: 4, after: 5 } },
    ...parts,
  });

const AMOUNTS = [
  '-0.01',
  '0.00',
  '0.0',
  '199.99',
  '200.00',
  '200.01',
  '499.99',
  '922337203685477.5807',
];
const inputs: PolicyInput[] = [
  policyInput({ budgets: { spent: { before: 0, after: 1 } } }),
  policyInput({
    fixture: { ref: 'f', hash: null },
    budgets: { spent: { before: 0, after: 1 } },
  }),
  ...AMOUNTS.map((decimal) => agentInput({ facts: { amount: { decimal } } })),
  ...[-6, -5, 0, 4, 5, 6, 2 ** 53 - 1].map((n) => agentInput({ facts: { n } })),
  ...['', 'a', 'ab', 'b'].map((name) => agentInput({ facts: { name, n: 5 } })),
  agentInput({ facts: { constructor: 'a' } }),
  ...['a', 'ab'].map((tool) => agentInput({ tool })),
  ...['a', 'f'].map((framework) => agentInput({ agent: { id: 'b', framework, bound: true } })),
  ...[4, 5, 6].map((before) => agentInput({ budgets: { spent: { before, after: before + 1 } } })),
];

it.each([
  'context.facts has amount && context.facts.amount.greaterThan(decimal("200.00"))',
  'context.facts has amount && decimal("0.0").lessThanOrEqual(context.facts.amount)',
  'context.facts has amount && context.facts.amount == decimal("200.0")',
  'context.facts has n && (context.facts.n < -5 || 5 < context.facts["n"])',
  'context.facts has n && context.facts.n != 5',
  'context.facts has n && context.facts.n * 2 > 9',
  'context.facts has n && [4, 6].contains(context.facts.n)',
  'context.facts has n && context.facts.n < 9007199254740991',
  'context.facts has name && context.facts.name like "a*"',
  'context.facts has name && {"Value": context.facts.name} == {"Value": "ab"}',
  '(if context.lane == "agent" then context.facts else context.facts) has name',
  'context.facts has constructor',
  'context has agent.framework && context.agent.bound',
  '!(context has agent)',
  'context has fixture && !context.fixture.resolved',
  'context.budgets has spent && context.budgets.spent.after > 6',
  'context.budgets has spent && context.budgets.spent.before + 1 == context.budgets.spent.after && context.budgets.spent.before == 5',
])('a cached decision equals a new evaluation: %s', async (condition) => {
  const { engine, set } = await setOf(condition);
  const texts = preparse('uncached', set);
  const decisions = inputs.map((input) => engine.decide(input));
  expect(decisions).toEqual(inputs.map((input) => evaluate(texts, input)));
  expect(new Set(decisions.map(({ effect }) => effect)).size).toBe(2);
});

it('an amount between the same literals of a rule, or a fact that no rule uses, needs no new evaluation', async () => {
  const { engine } = await setOf(
    'context.facts has amount && context.facts.amount.greaterThan(decimal("200.00"))',
  );
  const decide = (decimal: string, name: string) =>
    engine.decide(agentInput({ facts: { amount: { decimal }, name } }));
  // A cached decision is the same object.
  expect(decide('199.99', 'second')).toBe(decide('1.00', 'first'));
  expect(decide('200.01', 'second')).not.toBe(decide('1.00', 'first'));
});

it('the cache key covers the whole context when a policy does not parse', () => {
  const uses = contextUses({ some: 'forbid' });
  expect(usedText(uses, { n: 1 })).not.toBe(usedText(uses, { n: 2 }));
});

it('an input that Cedar cannot evaluate is denied, and does not cause later denials', async () => {
  const { engine } = await setOf('context.facts has n && context.facts.n > 5');
  const decide = (parts: Partial<PolicyInput>) => engine.decide(agentInput(parts));
  expect(decide({ facts: { amount: { decimal: 'x' } } }).reasons).toEqual(['fact.amount']);
  expect(decide({ facts: { n: 1.5 } }).reasons).toEqual(['fact.n']);
  expect(decide({ facts: { set: [null as unknown as string] } }).reasons).toEqual(['fact.set']);
  expect(decide({ budgets: { spent: { before: 4, after: 5.5 } } }).effect).toBe('DENY');
  expect(decide({}).effect).toBe('ADMIT');
});
