import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { OperatorError } from '#runtime/process/operator-error';
import type { Fault, Outcome } from './fault.js';
import { FAULTS } from './rows/index.js';
import { inLanes } from './lanes.js';
import { surviveLostConnections } from './lost-connections.js';
import { hasPassed, rowOf, tableOf } from './table.js';
import { isRed, walkUnsafe } from './unsafe.js';
import { closeAll } from './world.js';

const USAGE = `npm run test:faults -- [options]
  --only <name>   only faults that have this in their name; may come several times
  --lanes <n>     stacks side by side (3)
  --unsafe        that the table can fail: succeeds when what a Postgres acknowledged that
                  waits for no disk is found to be lost
  --json <file>   writes the outcomes there too
`;

/** Entry point: goes through the table of faults. Exit code 1 when a row fails. */
const { values } = parseArgs({
  options: {
    only: { type: 'string', multiple: true, default: [] },
    lanes: { type: 'string', default: '3' },
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
  throw new OperatorError(`no fault has that in its name:\n${names}`);
}

async function main(): Promise<void> {
  if (values.help) {
    console.log(USAGE);
    return;
  }
  if (values.unsafe) {
    const outcome = await walkUnsafe();
    console.log(`${tableOf([outcome])}\n`);
    console.log(isRed(outcome) ? 'red, as it must be' : 'NOT RED: what was lost is not seen');
    if (!isRed(outcome)) process.exitCode = 1;
    return;
  }
  const began = performance.now();
  const faults = chosen();
  const say = (outcome: Outcome): void => console.log(rowOf(outcome));
  const outcomes = await inLanes(faults, Number(values.lanes), say);
  console.log(`\n${tableOf(outcomes)}\n`);
  const isStrict = process.env['CI'] === 'true';
  // Where everything can be had, a row that was left out was not survived.
  const done = outcomes.filter(({ skipped }) => isStrict || skipped === undefined);
  const failed = done.filter(
    (outcome) => !hasPassed(outcome) || outcome.skipped !== undefined,
  ).length;
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

const stop = (): void => {
  void closeAll().finally(() => process.exit(1));
};
process.once('SIGTERM', stop).once('SIGINT', stop);
surviveLostConnections();

await main().catch((error: unknown) => {
  console.error(error instanceof OperatorError ? error.message : error);
  process.exitCode = 1;
});
// A connection that a fault left half open is no reason to stay.
process.exit();
