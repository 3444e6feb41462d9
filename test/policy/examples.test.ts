import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
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

  it('decides its cases as expected, and they cover every rule', async () => {
    const set = await makePolicySet(await readPolicyFolder(path));
    const engine = await preparePolicyEngine(set);
    const cases = parsePolicyCases(readFileSync(join(path, 'cases.json')));
    const results = cases.map((one) => runPolicyCase(engine, one));
    expect(results.filter(({ passed }) => !passed)).toEqual([]);
    expect(whyNotCovered(set.files.policies, namedActions(set.files), results)).toBeNull();
  });
});

it('a misspelled action of a required fact has no case', async () => {
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
