import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { namedActions, parsePolicyCases, runPolicyCase, whyNotCovered } from '#policy/cases';
import { checkPolicyTexts } from '#policy/check';
import { preparePolicyEngine } from '#policy/decide';
import { makePolicySet, readPolicyFolder, readPolicyTexts } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';

const folder = join(packageRoot, 'examples', 'policies');

describe.each(readdirSync(folder))('examples/policies/%s', (name) => {
  const path = join(folder, name);

  it('has no problems', async () => {
    expect(await checkPolicyTexts(await readPolicyTexts(path))).toEqual([]);
  });

  it('decides its cases as expected, and has a case for every rule', async () => {
    const set = await makePolicySet(await readPolicyFolder(path));
    const engine = await preparePolicyEngine(set);
    const cases = parsePolicyCases(readFileSync(join(path, 'cases.json')));
    const results = cases.map((one) => runPolicyCase(engine, one));
    expect(results.filter(({ passed }) => !passed)).toEqual([]);
    expect(whyNotCovered(set.files.policies, namedActions(set.files), results)).toBeNull();
  });
});

it('a case in which a rule fails to evaluate does not cover that rule', async () => {
  const files = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
  const schema = files.schema.replace('facts: {}', 'facts: { n?: Long }');
  const overflow = `forbid (principal, action, resource)
    when { context.facts has n && context.facts.n * 9223372036854775807 > 5 };`;
  const policies = { overflow };
  const engine = await preparePolicyEngine(await makePolicySet({ ...files, schema, policies }));
  const denied = (n: number) => ({
    name: `n is ${n}`,
    input: {
      ...{ tenant: 'acme', environment: 'sandbox', lane: 'agent', action: 'COUNT' },
      agent: { id: 'agent-7' },
      facts: { n },
    },
    expect: 'DENY',
    reasons: ['overflow'],
  });
  const [erring, deciding] = parsePolicyCases(utf8(JSON.stringify([denied(3), denied(1)]))).map(
    (one) => runPolicyCase(engine, one),
  );
  expect([erring!.passed, deciding!.passed]).toEqual([true, true]);
  expect(whyNotCovered(policies, [], [erring!])).toBe('no case covers overflow.cedar');
  expect(whyNotCovered(policies, [], [erring!, deciding!])).toBeNull();
});

it('coverage by a case file > is incomplete when the schema misspells the action that needs a fact', async () => {
  const path = join(folder, 'refunds');
  const files = await readPolicyFolder(path);
  const schema = files.schema.replaceAll('ISSUE_REFUND', 'ISSUE_REFUNDS');
  const engine = await preparePolicyEngine(await makePolicySet({ ...files, schema }));
  const cases = parsePolicyCases(readFileSync(join(path, 'cases.json')));
  const results = cases
    .filter(({ expect: effect }) => effect === 'ADMIT')
    .map((one) => runPolicyCase(engine, one));
  expect(whyNotCovered({}, namedActions({ ...files, schema }), results)).toBe(
    'no case covers action ISSUE_REFUNDS',
  );
});
