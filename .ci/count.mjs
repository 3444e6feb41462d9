// Prints the result of CI as the last line: `N passed, N failed`. A run without a complete result, or with
// an exit status that its numbers do not explain, counts as failed. CI skips no test.
// node .ci/count.mjs <directory> <status of the tests> <of the long tests> <of the tests under the LTS Node> <of the faults>
//   <of the fuzzing> <of the audit> <of the Python checks>
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const [directory = '.', ...statuses] = process.argv.slice(2);

function read(name) {
  try {
    return readFileSync(join(directory, name), 'utf8');
  } catch {
    return '';
  }
}

function json(name) {
  try {
    return JSON.parse(read(name)) ?? {};
  } catch {
    return {};
  }
}

/** Prints a failure right before the count, so that a reader need not search the whole output. */
function report(what, where, why) {
  const first = String(why ?? '')
    .replace(/\x1b\[[0-9;]*m/g, '')
    .split('\n', 3)
    .join(' | ');
  console.log(`FAILED ${what}: ${where}: ${first.slice(0, 600)}`);
}

/** The numbers of a run of vitest; `prefix` distinguishes its failures from those of other runs. */
function vitest(part, prefix = '') {
  const { numPassedTests, numFailedTests, numPendingTests, numTodoTests, testResults } = json(
    `${part}.json`,
  );
  const unloaded = testResults?.filter(
    ({ status, assertionResults }) =>
      status === 'failed' && assertionResults.every((one) => one.status !== 'failed'),
  );
  for (const { name, message, assertionResults } of testResults ?? []) {
    const file = prefix + (name ?? '').replace(/^.*\/test\//, 'test/');
    for (const one of assertionResults) {
      const after = `after ${Math.round(one.duration ?? 0)} ms: ${one.failureMessages?.[0] ?? ''}`;
      if (one.status === 'failed') report(file, one.fullName, after);
    }
    if (message) report(file, 'the file itself', message);
  }
  return [numPassedTests, numFailedTests + unloaded?.length, numPendingTests + numTodoTests];
}

/** Numbers of passed, failed and skipped tests; a missing number means that the run did not end. */
const parts = {
  tests: () => vitest('tests'),
  long: () => vitest('long'),
  lts: () => vitest('lts', 'long-term Node: '),
  faults: () => {
    const { passed, failed, outcomes = [] } = json('faults.json');
    // For example, scenarios that fill a disk are skipped where this process must not mount a disk.
    for (const { name, skipped, problems } of outcomes) {
      if (problems?.length > 0) report('fault', name, problems.join('; '));
      if (skipped !== undefined) console.log(`faults: ${name} was skipped: ${skipped}`);
    }
    return [passed, failed, 0];
  },
  fuzzing: () => {
    const [, passed, failed] =
      /^(\d+) targets passed, (\d+) failed$/m.exec(read('fuzzing.log')) ?? [];
    return [Number(passed), Number(failed), 0];
  },
  // Exit code 3 (no answer) is neither a pass nor a failure; a line before the count reports it.
  audit: (status) => (status === '3' ? null : [status === '0' ? 1 : 0, status === '0' ? 0 : 1, 0]),
  // Only pytest prints a line of this form, and it runs only after ruff and mypy have passed.
  python: () => {
    const [summary = ''] = /^(\d+ \w+, )*\d+ passed.* in [0-9.]+s$/m.exec(read('python.log')) ?? [];
    const numberOf = (word) => Number(new RegExp(`(\\d+) ${word}`).exec(summary)?.[1] ?? 0);
    const failed = numberOf('failed') + numberOf('errors?');
    return summary === '' ? [NaN] : [numberOf('passed'), failed, numberOf('skipped')];
  },
};

let [allPassed, allFailed] = [0, 0];
Object.entries(parts).forEach(([name, result], at) => {
  const status = statuses[at] ?? 'unknown';
  const numbers = result(status);
  if (numbers === null) {
    console.log(`${name}: no answer from the npm registry, so not counted`);
    return;
  }
  const isWhole = numbers.every((one) => Number.isSafeInteger(one) && one >= 0);
  const [passed, failed, skipped] = isWhole ? numbers : [0, 1, 0];
  if (skipped > 0) console.log(`${name}: CI must skip no tests, but ${skipped} were skipped`);
  const known = failed + skipped;
  const isUnexplained = known === 0 && (status !== '0' || passed === 0);
  if (!isWhole || isUnexplained) {
    // vitest prints errors outside of tests, such as unhandled rejections, at the end of its output.
    const what = isWhole ? `${passed} passed` : 'no result';
    console.log(
      `FAILED ${name}: ended with exit status ${status} and ${what}; the end of its output:`,
    );
    console.log(read(`${name}.log`).trimEnd().split('\n').slice(-80).join('\n'));
  }
  allPassed += passed;
  allFailed += isUnexplained ? 1 : known;
});

if (allFailed > 0) process.exitCode = 1;
console.log(`${allPassed} passed, ${allFailed} failed`);
