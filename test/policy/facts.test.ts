import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkPolicyTexts } from '#policy/check';
import { preparePolicyEngine, type PolicyEngine } from '#policy/decide';
import { makePolicySet } from '#policy/policy-set';
import { canonicalize, type JsonValue } from '#protocol/json';
import { type PolicyInput, policyInputText } from '#protocol/policy-input';
import type { Facts } from '#protocol/schemas/facts';
import { packageRoot } from '#runtime/process/files';
import { policyInput } from '../fixtures/policy-input.js';

const DEFAULT = join(packageRoot, 'policy', 'default');
const PERMIT = 'permit (principal, action, resource);';
const text = readFileSync(join(DEFAULT, 'schema.cedarschema'), 'utf8');

const schemaWith = (facts: string): string => text.replace('facts: {}', `facts: { ${facts} }`);

const refund = (facts: Facts, overrides: Partial<PolicyInput> = {}): PolicyInput =>
  policyInput({
    lane: 'agent',
    action: 'ISSUE_REFUND',
    agent: { id: 'support-1', framework: null, bound: false },
    facts,
    ...overrides,
  });

const engineOf = async (schema: string, policies: Record<string, string>): Promise<PolicyEngine> =>
  preparePolicyEngine(await makePolicySet({ schema, policies, sentences: {} }));

describe('facts of a schema', () => {
  const problemsOf = async (facts: string, rule = PERMIT): Promise<string[]> => {
    const found = await checkPolicyTexts({ schema: schemaWith(facts), policies: { rule } });
    return found.map(({ message }) => message);
  };

  it.each<[type: string, condition: string, value: Facts[string], other: Facts[string]]>([
    ['String', 'context.facts.a == "x"', 'x', 'y'],
    ['Long', 'context.facts.a < 5', 4, 5],
    ['Bool', 'context.facts.a', true, false],
    [
      'decimal',
      'context.facts.a.lessThan(decimal("5.0"))',
      { decimal: '4.9999' },
      { decimal: '5.0' },
    ],
    ['Set<String>', 'context.facts.a.contains("x")', ['w', 'x'], []],
    [
      'Alias',
      'context.facts.a.greaterThan(decimal("-1.0"))',
      { decimal: '0.5' },
      { decimal: '-1.0' },
    ],
  ])(
    'can be of type %s, which accepts no values of other types',
    async (type, condition, value, other) => {
      const schema = schemaWith(`a?: ${type}`).replace(
        'type Agent',
        'type Alias = decimal;\n  type Agent',
      );
      const rule = `permit (principal, action, resource) when { context.facts has a && ${condition} };`;
      expect(await checkPolicyTexts({ schema, policies: { rule } })).toEqual([]);
      const engine = await engineOf(schema, { rule });
      expect(engine.decide(refund({ a: value }))).toEqual({ effect: 'ADMIT', reasons: ['rule'] });
      expect(engine.decide(refund({ a: other }))).toEqual({ effect: 'DENY', reasons: [] });
      const all: Facts[string][] = ['x', 4, true, { decimal: '4.9999' }, ['x']];
      for (const wrong of all.filter(
        (one) => JSON.stringify(one)[0] !== JSON.stringify(value)[0],
      )) {
        expect(engine.decide(refund({ a: wrong }))).toEqual({
          effect: 'DENY',
          reasons: ['fact.a'],
        });
      }
    },
  );

  it.each([
    ['a required attribute', 'a: decimal'],
    ['another extension type', 'a?: ipaddr'],
    ['a set of integers', 'a?: Set<Long>'],
    ['a record', 'a?: { b: Long }'],
    ['an entity', 'a?: Tenant'],
    ['an upper-case name', 'Amount?: decimal'],
    ['a name with a point', '"a.b"?: decimal'],
    ['the name of another committed value', 'request_hash?: String'],
    ['a misspelled annotation', '@requiredFor("REFUND") a?: decimal'],
    ['a lower-case action', '@required_for("refund") a?: decimal'],
    ['no action', '@required_for a?: decimal'],
  ])('are rejected by validate with %s', async (_, facts) => {
    const problems = await problemsOf(facts);
    expect(problems).toEqual([
      expect.stringMatching(/context\.facts\.\S+ is declared as .*: declare a fact as/),
    ]);
  });

  it('must be in `facts`: validate rejects @required_for on any other attribute', async () => {
    const schema = text.replace('tool?: String', '@required_for("REFUND") tool?: String');
    const [problem] = await checkPolicyTexts({ schema, policies: { rule: PERMIT } });
    expect(problem?.message).toContain('context.tool is declared as optional String (required_for');
  });

  it('must be declared: validate rejects a rule that uses an undeclared fact', async () => {
    const rule = `forbid (principal, action, resource) when { context.facts has limit && true };`;
    expect(await problemsOf('amount?: decimal', rule)).toContain(
      'no input contains context.facts.limit: context.facts has amount',
    );
  });

  it('are required for exactly the actions of their annotation, on both request types', async () => {
    const schema = schemaWith(
      '@required_for("A,B") @doc("x") b?: Long, @required_for("A") a?: Bool',
    );
    const engine = await engineOf(schema, { all: PERMIT });
    const decide = (action: string, facts: Facts) => engine.decide(refund(facts, { action }));
    const denied = (...reasons: string[]) => ({ effect: 'DENY', reasons });
    expect(decide('A', {})).toEqual(denied('fact.a', 'fact.b'));
    expect(decide('A', { b: 1 })).toEqual(denied('fact.a'));
    expect(decide('A', { b: 1, c: 1 })).toEqual(denied('fact.a', 'fact.c'));
    expect(decide('B', {})).toEqual(denied('fact.b'));
    expect(decide('AB', {}).effect).toBe('ADMIT');
    expect(decide('B', { b: 1 }).effect).toBe('ADMIT');
    const execution = refund({}, { action: 'B', lane: 'execute', agent: null, tool: null });
    expect(engine.decide(execution)).toEqual(denied('fact.b'));
  });
});

it.each(['fact.amount', 'budget.daily'])(
  'validate > rejects the policy id %s, whose prefix is reserved',
  async (id) => {
    const found = await checkPolicyTexts({ schema: text, policies: { [id]: PERMIT } });
    expect(found).toMatchObject([{ file: `${id}.cedar`, severity: 'error' }]);
  },
);

it('policyInputText > is the canonical form, whatever the order of the facts', () => {
  const input = refund(
    { b: ['x'], a1: { decimal: '1.0' }, a: -0 },
    { fixture: { ref: 'f', hash: null } },
  );
  const document = { ...input, schema_version: 'svc.policy.input/1.1', salt: 's' };
  expect(policyInputText(input, 's')).toBe(canonicalize(document as unknown as JsonValue));
});
