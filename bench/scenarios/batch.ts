import { runBaselineLoop, type Baseline } from '../baseline/baseline-loop.js';
import { createBaselineTable, dropBaselineTable } from '../baseline/signed-documents.js';
import { rateOf, runBatches, type BatchRun } from '../harness/batch-load.js';
import { withCleanup } from '../harness/cleanup.js';
import { print } from '../harness/command.js';
import { openBenchRegistry } from '../harness/registry.js';
import { resultOf, type Result, type Scenario, type RunContext } from '../harness/scenario.js';
import { startPrograms } from '../harness/stack.js';
import { whole } from '../harness/statistics.js';

/** Batch admission from HTTP to publication, measured between two runs of the baseline loop. */
export const batch: Scenario = { name: 'batch', run };

/** Twice the default, because one tenant's batches may fill only a quarter of the queue. */
const MAX_QUEUED_ADMISSIONS = '200000';

const QUICK = {
  baseline: { warmUpSeconds: 0.5, seconds: 1.5 },
  batches: { warmUpSeconds: 2, seconds: 4, items: 2_500, inFlight: 15_000, checkEveryMs: 500 },
  checkedAtLeast: 20,
};
const FULL = {
  baseline: { warmUpSeconds: 2, seconds: 10 },
  batches: { warmUpSeconds: 8, seconds: 60, items: 5_000, inFlight: 50_000, checkEveryMs: 1_000 },
  checkedAtLeast: 100,
};

async function run(context: RunContext): Promise<Result[]> {
  const { dir, redis, signal, quick, cleanup } = context;
  const plan = quick ? QUICK : FULL;
  const registry = await openBenchRegistry(dir, cleanup, { MAX_QUEUED_ADMISSIONS });
  const { owner } = registry;
  const baselineLoop = async (): Promise<Baseline> => {
    await createBaselineTable(owner);
    // Flushes PostgreSQL's dirty pages, so that neither measurement writes pages that the other changed.
    await owner`checkpoint`;
    const baseline = await runBaselineLoop(registry, plan.baseline, signal);
    await dropBaselineTable(owner);
    await owner`checkpoint`;
    print(`      baseline loop: ${baseline.rate.toFixed(0)} rows/s`);
    return baseline;
  };
  const before = await baselineLoop();
  const run = await withCleanup(async (inner) => {
    const stack = await startPrograms(registry, { redis }, inner);
    return runBatches(stack, { ...plan.batches, signal });
  });
  print(`      batches: ${rateOf(run).toFixed(0)} proofs/s`);
  return batchResults({ baseline: [before, await baselineLoop()], run }, quick);
}

export interface BatchMeasured {
  baseline: readonly [before: Baseline, after: Baseline];
  run: BatchRun;
}

export function batchResults(measured: BatchMeasured, quick: boolean): Result[] {
  const { run } = measured;
  const { checkedAtLeast } = quick ? QUICK : FULL;
  const { checked, denied, wrong } = run.checked;
  const retried = Object.entries(run.retried).map(([code, count]) => `${String(count)} × ${code}`);
  return [
    admission(measured),
    cpuPerProof(measured),
    resultOf({
      name: 'receipts checked from outside',
      value: checked - wrong.length,
      unit: 'right',
      against: { what: 'all random receipts that were checked during the run', value: checked },
      target: { ratio: { atLeast: 1 }, value: { atLeast: checkedAtLeast } },
      note:
        'public verdict, response hash, offline verification of the export under pinned keys, inclusion under the public ' +
        `checkpoint; ${String(denied)} denials; ${wrong.length === 0 ? '0 wrong' : `${String(wrong.length)} WRONG: ${wrong.slice(0, 3).join('; ')}`}`,
    }),
    resultOf({
      name: 'batch items never published',
      value: run.lost,
      unit: 'items',
      target: { value: { atMost: 0, atLeast: 0 } },
      note: `of ${whole(run.items)} accepted; deferred: ${retried.join(', ') || 'none'}`,
    }),
  ];
}

function admission({ baseline: [before, after], run }: BatchMeasured): Result {
  const { processes } = before;
  const { total } = run.cpu;
  return resultOf({
    name: 'batch admission',
    value: rateOf(run),
    unit: 'proofs/s',
    against: {
      what: `the baseline loop in ${String(processes)} processes: ${whole(before.rate)} before, ${whole(after.rate)} after`,
      value: (before.rate + after.rate) / 2,
    },
    target: { ratio: { atLeast: 0.75 }, value: { atLeast: 10_000 } },
    note:
      `${whole(run.proofs)} proofs were published in ${whole(run.seconds)} s; one tenant, ${whole(run.batches)} batches of ` +
      `${whole(run.items / run.batches)}, one worker; CPU-bound: ${whole(total)} µs per proof are at most ` +
      `${whole((processes * 1e6) / total)}/s on ${String(processes)} idle cores`,
  });
}

/** CPU time per proof, which other load on the machine hardly affects. */
function cpuPerProof({ baseline: [before, after], run }: BatchMeasured): Result {
  const mean = (of: (one: Baseline) => number): number => (of(before) + of(after)) / 2;
  const loop = mean(({ loopMicros }) => loopMicros);
  const postgres = mean(({ postgresMicros }) => postgresMicros);
  return resultOf({
    name: 'batch admission: CPU per proof',
    value: run.cpu.total,
    unit: 'µs',
    against: {
      what: `the baseline loop: process ${whole(loop)}, Postgres ${whole(postgres)}`,
      value: loop + postgres,
    },
    target: { ratio: { atMost: 2.1 } },
    note: Object.entries(run.cpu.micros)
      .map(([name, micros]) => `${name} ${whole(micros)}`)
      .join(', '),
  });
}
