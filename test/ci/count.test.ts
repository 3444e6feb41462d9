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

type Ending = [last: string, code: number | null];

/** The CI summary's last line and exit code for these results; '' means a missing file. */
const count = async (...given: Parameters<typeof linesAndCount>): Promise<Ending> =>
  (await linesAndCount(...given)).ending;

async function linesAndCount(
  files: Partial<typeof GOOD> = {},
  statuses: Partial<typeof STATUSES> = {},
): Promise<{ lines: string[]; ending: Ending }> {
  for (const [name, text] of Object.entries({ ...GOOD, ...files })) {
    if (text !== '') await writeFile(join(dir, name), text);
  }
  const { stdout, status } = spawnSync(
    process.execPath,
    ['.ci/count.mjs', dir, ...Object.values({ ...STATUSES, ...statuses })],
    { cwd: packageRoot, encoding: 'utf8' },
  );
  const lines = stdout.trimEnd().split('\n');
  return { lines: lines.slice(0, -1), ending: [lines.at(-1) ?? '', status] };
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

  it('names the failed tests at its end', async () => {
    const failure = {
      status: 'failed',
      fullName: 'a proof is found',
      duration: 12.3,
      failureMessages: ['\u001b[31mError\u001b[39m: expected 1\n\n  at a.ts:1'],
    };
    const testResults = [
      { name: '/x/test/a.test.ts', status: 'failed', assertionResults: [failure] },
      { name: '/x/test/b.test.ts', status: 'failed', message: 'no module', assertionResults: [] },
    ];
    const lts = { ...TESTS, numPassedTests: 5, numFailedTests: 1 };
    const outcomes = [{ name: 'disk full', problems: ['1 lost', 'fsck not clean'] }];
    const files = {
      ...tests({ numFailedTests: 1, testResults }),
      'lts.json': JSON.stringify({ ...lts, testResults: [testResults[0]] }),
      'faults.json': JSON.stringify({ passed: 19, failed: 1, outcomes }),
    };
    const { lines, ending } = await linesAndCount(files, { tests: '1', lts: '1', faults: '1' });
    expect(ending).toEqual(['138 passed, 4 failed', 1]);
    expect(lines).toEqual([
      'FAILED test/a.test.ts: a proof is found: after 12 ms: Error: expected 1 |  |   at a.ts:1',
      'FAILED test/b.test.ts: the file itself: no module',
      'FAILED long-term Node: test/a.test.ts: a proof is found: after 12 ms: Error: expected 1 |  |   at a.ts:1',
      'FAILED fault: disk full: 1 lost; fsck not clean',
    ]);
  });

  it.each([
    ['occurs outside of tests', {}, 'ended with exit status 1 and 100 passed'],
    ['prevents the result file', { 'tests.json': '' }, 'ended with exit status 1 and no result'],
  ])('shows the last lines of output when an error %s', async (_, files, why) => {
    const printed = [...new Array<string>(200).fill('x'), 'Unhandled Rejection', 'Error: late'];
    await writeFile(join(dir, 'tests.log'), printed.join('\n'));
    const { lines } = await linesAndCount(files, { tests: '1' });
    expect(lines[0]).toBe(`FAILED tests: ${why}; the end of its output:`);
    expect(lines).toHaveLength(81);
    expect(lines.slice(-2)).toEqual(['Unhandled Rejection', 'Error: late']);
  });
});
