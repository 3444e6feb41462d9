import { parseArgs } from 'node:util';
import { runCommand } from './command.js';
import { MEASUREMENTS } from './measurements.js';
import { runBench } from './run-bench.js';

const USAGE = `npm run bench               all rows; writes bench/results/latest.json
npm run bench -- --quick    smaller, two minutes; writes bench/results/quick.json
  --only <a,b>   some measurements; writes bench/results/partial.json
  --profile      CPU profiles of the programs where a measurement takes them, and where the time went
  --dir <dir>    keeps the data there, on a real disk; else in a directory that is removed
measurements: ${MEASUREMENTS.map(({ name }) => name).join(', ')}`;

await runCommand(USAGE, async (signal) => {
  const { values: given } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      profile: { type: 'boolean', default: false },
      only: { type: 'string' },
      dir: { type: 'string' },
    },
  });
  const { quick, profile, dir } = given;
  const only = given.only?.split(',');
  const rows = await runBench(MEASUREMENTS, { quick, profile, only, dir, signal });
  return { rows, results: only !== undefined ? 'partial' : quick ? 'quick' : 'latest' };
});
