import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { table } from '#programs/admin/command';
import { OperatorError } from '#runtime/process/operator-error';
import type { Fault, Outcome } from './fault.js';
import { printed } from './observation.js';
import { FAULTS } from './scenarios/index.js';
import { runFaults } from './stacks.js';
import { findsLoss, runUnsafe } from './unsafe.js';
import { runEntryPoint } from './world.js';

const seconds = (ms: number | null): string => (ms === null ? '–' : `${(ms / 1000).toFixed(1)} s`);

const resultOf = ({ skipped, problems }: Outcome): string => {
  if (skipped !== undefined) return 'skipped';
  return problems.length === 0 ? 'ok' : 'FAILED';
};

/** The columns of a scenario in the table. */
const rowOf = (outcome: Outcome) => ({
  injected: `${resultOf(outcome)} ${outcome.name}`,
  'acknowledged before': outcome.before,
  'failed meanwhile': outcome.failed,
  lost: outcome.lost,
  double: outcome.double,
  'recovered in': seconds(outcome.answeredMs),
  'settled in': seconds(outcome.settledMs),
  took: seconds(outcome.tookMs),
});

/** One line for the scenario, and one line for each problem. */
function print({ skipped, note, ...outcome }: Outcome): void {
  if (skipped !== undefined) return console.log(`${outcome.name}: skipped, ${skipped}`);
  console.log(Object.values(rowOf(outcome)).join(' | '));
  const seen = outcome.seen.map(printed);
  for (const line of [note ?? [], seen, outcome.problems.slice(0, 8)].flat()) {
    console.log(`    ${line}`);
  }
}

const USAGE = `npm run test:faults -- [options]
  --only <name>   run only faults with this text in their name; repeatable
  --lanes <n>     number of concurrent stacks (2)
  --unsafe        check that the table can fail: succeeds when the audit finds the admissions
                  lost that a Postgres without durable commits acknowledged
  --json <file>   write the outcomes to a file
`;

/** Entry point: runs the table of faults. Exit code 1 when a scenario fails. */
const { values } = parseArgs({
  options: {
    only: { type: 'string', multiple: true, default: [] },
    lanes: { type: 'string', default: '2' },
    unsafe: { type: 'boolean', default: false },
    json: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

function chosen(): Fault[] {
  if (values.only.length === 0) return FAULTS;
  const found = FAULTS.filter(({ name }) => values.only.some((part) => name.includes(part)));
  if (found.length > 0) return found;
  const names = FAULTS.map(({ name }) => `  ${name}`).join('\n');
  throw new OperatorError(`no fault has this text in its name:\n${names}`);
}

async function main(): Promise<void> {
  if (values.help) {
    console.log(USAGE);
    return;
  }
  if (values.unsafe) {
    const outcome = await runUnsafe();
    print(outcome);
    console.log(
      findsLoss(outcome)
        ? 'the audit finds the lost admissions, as required'
        : 'ERROR: the audit does not find the lost admissions',
    );
    if (!findsLoss(outcome)) process.exitCode = 1;
    return;
  }
  const began = performance.now();
  const faults = chosen();
  const outcomes = await runFaults(faults, Number(values.lanes), print);
  console.log(`\n${table(outcomes.map(rowOf))}`);
  const isStrict = process.env['CI'] === 'true';
  // In CI every scenario can run, so a skipped scenario counts as failed.
  const done = outcomes.filter(({ skipped }) => isStrict || skipped === undefined);
  const failed = done.filter((outcome) => resultOf(outcome) !== 'ok').length;
  const seconds = Math.round((performance.now() - began) / 1000);
  console.log(
    `${String(done.length - failed)} faults survived, ${String(failed)} not, in ${String(seconds)} s`,
  );
  if (values.json !== undefined) {
    const numbers = { passed: done.length - failed, failed, seconds, outcomes };
    writeFileSync(values.json, `${JSON.stringify(numbers, null, 2)}\n`);
  }
  if (failed > 0 || done.length === 0) process.exitCode = 1;
}

await runEntryPoint(main);
