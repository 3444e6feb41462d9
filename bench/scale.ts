import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { runCommand } from './command.js';
import { openBenchDirectory } from './directory.js';
import { describeNeed, diskNeeds, growingPlaces, requireRoom } from './growth/disk-need.js';
import { proofsIn } from './filling/generator.js';
import { measureGrowth } from './growth/growth.js';
import { growthRows } from './rows/growth-rows.js';
import type { Row } from './row.js';
import { say } from './say.js';
import { scaleSteps } from './growth/sizes.js';
import { requireTools } from './tools.js';

const USAGE = `npm run bench:scale               growth rows up to 10,000,000 proofs; hours, and a large disk
  --proofs <n>   up to as many
  --dir <dir>    keeps the data there, and goes on where it was; else in a directory that is removed
What it takes on disk is measured on the first 10,000, and held against what is free before it goes on.`;

await runCommand(USAGE, async (signal) => {
  const { values: given } = parseArgs({
    options: {
      proofs: { type: 'string', default: '10000000' },
      dir: { type: 'string' },
    },
  });
  const proofs = Number(given.proofs);
  if (!Number.isSafeInteger(proofs) || proofs < 1_000) return null;
  return { rows: await scale(proofs, given.dir, signal), results: 'scale' };
});

/** The same code that appends and publishes anywhere, over as many proofs. */
async function scale(most: number, dir: string | undefined, signal: AbortSignal): Promise<Row[]> {
  requireTools(['wrk', 'taskset']);
  const steps = scaleSteps(most);
  const directory = await openBenchDirectory(dir);
  try {
    const points = await measureGrowth(
      join(directory.path, 'registry'),
      join(directory.path, 'beside'),
      {
        steps,
        recentLookupLimit: 100_000,
        stretches: 15,
        proofs: 1_000,
        rounds: 6,
        seconds: 2,
        signal,
        before: async (registry) => {
          const ahead = Math.max(0, most - (await proofsIn(registry)));
          const more = ahead + steps.slice(0, -1).reduce((sum, step) => sum + step, 0);
          const needs = await diskNeeds(await growingPlaces(registry), more);
          for (const need of needs) say(describeNeed(need));
          requireRoom(needs, more);
        },
      },
    );
    return growthRows(points);
  } finally {
    await directory.close();
  }
}
