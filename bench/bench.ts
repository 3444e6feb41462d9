import { parseArgs } from 'node:util';
import { MEASUREMENTS } from './measurements.js';
import { resultsFile, writeResults } from './results.js';
import { runBench } from './run-bench.js';
import { say } from './say.js';
import { table } from './table.js';
import { isForOperator } from '#runtime/operator-error';

const USAGE = `npm run bench               all rows; writes bench/results/latest.json
npm run bench -- --quick    smaller, some three minutes; writes bench/results/quick.json
  --only <a,b>   some measurements; writes bench/results/partial.json
  --profile      CPU profiles of the programs where a measurement takes them, and where the time went
  --dir <dir>    keeps the data there, on a real disk; else in a directory that is removed
measurements: ${MEASUREMENTS.map(({ name }) => name).join(', ')}`;

const stopping = new AbortController();
// Ctrl-C comes twice where npm hands it on: the second must not end what closes things.
process.on('SIGINT', () => stopping.abort());
process.on('SIGTERM', () => stopping.abort());

try {
  const { values: given } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      profile: { type: 'boolean', default: false },
      only: { type: 'string' },
      dir: { type: 'string' },
    },
  });
  const only = given.only?.split(',');
  const rows = await runBench(MEASUREMENTS, {
    quick: given.quick,
    profile: given.profile,
    only,
    dir: given.dir,
    signal: stopping.signal,
  });
  say(`\n${table(rows)}`);
  const file = resultsFile(only !== undefined ? 'partial' : given.quick ? 'quick' : 'latest');
  await writeResults(file, rows);
  say(file);
  if (rows.some(({ ok }) => ok === false)) process.exitCode = 1;
} catch (error) {
  process.exitCode = 1;
  if (stopping.signal.aborted) say('Stopped; no results were written.');
  else if (isForOperator(error)) say(error.message);
  else if ((error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS')) {
    say(`${(error as Error).message}\n${USAGE}`);
    process.exitCode = 2;
  } else throw error;
}
