import { parseArgs } from 'node:util';
import { reportResults, resultsFile, runCommand, UsageError } from './harness/command.js';
import { runScenarios } from './harness/run.js';
import type { Scenario } from './harness/scenario.js';
import { batch } from './scenarios/batch.js';
import { budget } from './scenarios/budget.js';
import { execute } from './scenarios/execute.js';
import { facts } from './scenarios/facts.js';
import { freshness } from './scenarios/freshness.js';
import { growth } from './scenarios/growth.js';
import { lookup } from './scenarios/lookup.js';
import { map } from './scenarios/map.js';
import { memory } from './scenarios/memory.js';
import { paced } from './scenarios/paced.js';
import { storage } from './scenarios/storage.js';
import { tenants } from './scenarios/tenants.js';

/** The scenarios in the order in which they run: `growth` fills the registry that storage, lookup and memory share. */
const SCENARIOS: readonly Scenario[] = [
  batch,
  budget,
  execute,
  paced,
  facts,
  freshness,
  tenants,
  growth,
  storage,
  lookup,
  map,
  memory,
];
const DEFAULT_PROOFS = 1_000_000;
/** More than `RECENT_LOOKUP_LIMIT`, so that the registry also has proofs that generic lookups do not search. */
const MIN_PROOFS = 200_000;

const USAGE = `npm run bench               run all scenarios; writes bench/results/latest.json
npm run bench -- --quick    run smaller scenarios in minutes; writes bench/results/quick.json
  --only <a,b>   run some scenarios; writes bench/results/partial.json
  --proofs <n>   fill the shared registry with n proofs (${String(DEFAULT_PROOFS)}); fewer write partial.json
  --out <file>   write the results to this file, for example to keep those of some scenarios
  --dir <dir>    keep the data in a directory on a real disk
scenarios: ${SCENARIOS.map(({ name }) => name).join(', ')}`;

await runCommand(USAGE, async (signal) => {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      only: { type: 'string' },
      proofs: { type: 'string', default: String(DEFAULT_PROOFS) },
      out: { type: 'string' },
      dir: { type: 'string' },
    },
  });
  const { quick, dir, out } = values;
  const only = values.only?.split(',');
  const proofs = Number(values.proofs);
  if (!Number.isSafeInteger(proofs) || proofs < MIN_PROOFS) {
    throw new UsageError(`--proofs must be a whole number of at least ${String(MIN_PROOFS)}`);
  }
  const results = await runScenarios(SCENARIOS, { quick, proofs, only, dir, signal });
  const isPartial = only !== undefined || proofs < DEFAULT_PROOFS;
  const kind = isPartial ? 'partial' : quick ? 'quick' : 'latest';
  return reportResults(out ?? resultsFile(kind), results);
});
