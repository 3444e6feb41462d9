import { spawnSync } from 'node:child_process';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'svc-count-'));
});

const TESTS = {
  numPassedTests: 100,
  numFailedTests: 0,
  numPendingTests: 0,
  numTodoTests: 0,
  testResults: [{ status: 'passed', assertionResults: [{ status: 'passed' }] }],
};
const GOOD = {
  'tests.json': JSON.stringify(TESTS),
  'long.json': JSON.stringify({ ...TESTS, numPassedTests: 4 }),
  'lts.json': JSON.stringify({ ...TESTS, numPassedTests: 6 }),
  'faults.json': JSON.stringify({ passed: 20, failed: 0, outcomes: [{ name: 'a' }] }),
  'fuzzing.log': 'seeds: 1 and 2\n9 inputs\n5 targets passed, 0 failed\n',
  'python.log': 'All checks passed!\n4 passed in 0.10s\n',
};
const STATUSES = {
  tests: '0',
  long: '0',
  lts: '0',
  faults: '0',
  fuzzing: '0',
  audit: '0',
  python: '0',
};

/** The CI summary's last line and exit code for these results; '' means a missing file. */
async function count(
  files: Partial<typeof GOOD> = {},
  statuses: Partial<typeof STATUSES> = {},
): Promise<[last: string, code: number | null]> {
  for (const [name, text] of Object.entries({ ...GOOD, ...files })) {
    if (text !== '') await writeFile(join(dir, name), text);
  }
  const { stdout, status } = spawnSync(
    process.execPath,
    ['.ci/count.mjs', dir, ...Object.values({ ...STATUSES, ...statuses })],
    { cwd: packageRoot, encoding: 'utf8' },
  );
  return [stdout.trimEnd().split('\n').at(-1) ?? '', status];
}

const tests = (fields: object) => ({ 'tests.json': JSON.stringify({ ...TESTS, ...fields }) });
const unloaded = [{ status: 'failed', assertionResults: [] }];

describe('CI summary', () => {
  it('counts every test, and reports success when all tests passed', async () => {
    expect(await count()).toEqual(['140 passed, 0 failed', 0]);
  });

  it('omits an audit whose registry did not respond', async () => {
    expect(await count({}, { audit: '3' })).toEqual(['139 passed, 0 failed', 0]);
  });

  it.each([
    ['a failed test', tests({ numPassedTests: 99, numFailedTests: 1 }), { tests: '1' }, 139, 1],
    ['a file that could not be loaded', tests({ testResults: unloaded }), { tests: '1' }, 140, 1],
    ['an error outside the tests', {}, { tests: '1' }, 140, 1],
    ['skipped tests', tests({ numPendingTests: 2 }), {}, 140, 2],
    ['no tests', tests({ numPassedTests: 0, testResults: [] }), {}, 40, 1],
    ['a missing test result', { 'tests.json': '' }, {}, 40, 1],
    ['no result of the long tests', { 'long.json': '' }, { long: '1' }, 136, 1],
    ['a failed fault', { 'faults.json': '{"passed":19,"failed":1}' }, {}, 139, 1],
    ['a missing fault result', { 'faults.json': '' }, {}, 120, 1],
    ['a crash after the faults', {}, { faults: '1' }, 140, 1],
    [
      'a fuzzing finding',
      { 'fuzzing.log': '4 targets passed, 1 failed\n' },
      { fuzzing: '1' },
      139,
      1,
    ],
    ['a crash after fuzzing', {}, { fuzzing: '134' }, 140, 1],
    ['a vulnerability', {}, { audit: '1' }, 139, 1],
    ['a failed Python test', { 'python.log': '1 failed, 3 passed in 0.1s\n' }, {}, 139, 1],
    ['an error before the Python tests', { 'python.log': 'F401\n' }, { python: '1' }, 136, 1],
  ])('fails for %s', async (_, files, statuses, passed, failed) => {
    expect(await count(files, statuses)).toEqual([
      `${String(passed)} passed, ${String(failed)} failed`,
      1,
    ]);
  });
});
