import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parsePolicyCases, runPolicyCase, whyNotCovered } from '#policy/cases';
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
    expect(whyNotCovered(set.files.policies, results)).toBeNull();
  });
});
