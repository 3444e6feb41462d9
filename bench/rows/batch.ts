import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { logger } from '#runtime/process/log';
import { connect } from '#runtime/postgres/connect';
import { runBare, type Bare } from '../bare/bare.js';
import { createBareTable, dropBareTable } from '../bare/bare-table.js';
import { batchRows } from './batch-rows.js';
import { runBatches, type BatchRun } from '../batches/batch-run.js';
import { databaseSize } from '../figures/database-size.js';
import { requireDurable } from '../service/durability.js';
import { runPipelineBatches } from '../pipeline/batches.js';
import { openBenchRegistry, type BenchRegistry } from '../service/registry.js';
import type { BenchContext, Measurement, Row } from '../row.js';
import { say } from '../say.js';
import { startPrograms } from '../service/stack.js';
import { tellProfile } from '../figures/tell-profile.js';

/** Worker processes: one keeps two cores busy with the others, and two share a lock. */
const WORKERS = 1;
/** Twice the default: a quarter of it is what batches of one tenant may have waiting. */
const MAX_QUEUED_ADMISSIONS = 200_000;

/** Functions of each program that a profile tells of. */
const TOLD = 15;

/**
 * Seconds, and items: of a batch, and of what may be on its way to the public. With starts and stops
 * and the way out of the last batches some 25 s of `--quick`, and some 135 s otherwise.
 */
const QUICK = {
  bare: { warmUpSeconds: 0.5, seconds: 1.5 },
  pipeline: { warmUpSeconds: 1, seconds: 2 },
  batches: { warmUpSeconds: 2, seconds: 4, items: 2_500, underWay: 15_000 },
};
const WHOLE = {
  bare: { warmUpSeconds: 2, seconds: 10 },
  pipeline: { warmUpSeconds: 6, seconds: 20 },
  batches: { warmUpSeconds: 8, seconds: 60, items: 5_000, underWay: 50_000 },
};

/** The bare loop, the bare pipeline, the service, and the bare loop again, all over one Postgres. */
async function measure(context: BenchContext): Promise<Row[]> {
  const { signal, quick } = context;
  const plan = quick ? QUICK : WHOLE;
  const registry = await openBenchRegistry(context.dir, logger('bench', 'warn'));
  const owner = connect(registry.ownerUrl, { application: 'bench', max: 1, statementTimeoutMs: 0 });
  const bareLoop = async (): Promise<Bare> => {
    await createBareTable(owner);
    // What was written before is not on the loop's account, nor the loop's on who comes after it.
    await owner`checkpoint`;
    const bare = await runBare(registry, plan.bare, signal);
    await dropBareTable(owner);
    await owner`checkpoint`;
    say(`      bare loop: ${bare.rate.toFixed(0)} rows/s`);
    return bare;
  };
  try {
    const durable = await requireDurable(registry);
    const before = await bareLoop();
    const pipeline = await runPipelineBatches(
      registry,
      context.dir,
      { ...plan.batches, ...plan.pipeline },
      signal,
    );
    say(`      bare pipeline: ${(pipeline.proofs / pipeline.seconds).toFixed(0)} proofs/s`);
    await owner`checkpoint`;
    const profileDir = context.profile ? join(context.dir, 'profiles') : undefined;
    const run = await runService(registry, context, { ...plan.batches, profileDir });
    say(`      batches: ${(run.proofs / run.seconds).toFixed(0)} proofs/s`);
    const size = await databaseSize(owner);
    const after = await bareLoop();
    const found = {
      bare: [before, after] as const,
      pipeline,
      run,
      workers: WORKERS,
      size,
      durable,
    };
    if (profileDir !== undefined) {
      for (const name of await readdir(profileDir)) {
        await tellProfile(name, join(profileDir, name), TOLD);
      }
    }
    return batchRows(found, quick);
  } finally {
    await owner.end({ timeout: 5 });
    await registry.close();
  }
}

async function runService(
  registry: BenchRegistry,
  { redisUrl, redisPid, signal, quick }: BenchContext,
  plan: (typeof WHOLE)['batches'] & { profileDir: string | undefined },
): Promise<BatchRun> {
  const { profileDir } = plan;
  const env = { engine: { MAX_QUEUED_ADMISSIONS: String(MAX_QUEUED_ADMISSIONS) } };
  const options = { redisUrl, workers: WORKERS, recentLookupLimit: 100_000, profileDir, env };
  const stack = await startPrograms(registry, options);
  try {
    const checkEveryMs = quick ? 500 : 1_000;
    return await runBatches(stack, {
      ...plan,
      profileDir: profileDir && join(profileDir, 'client'),
      redisPid,
      checkEveryMs,
      signal,
    });
  } finally {
    await stack.close();
  }
}

export const batch: Measurement = { name: 'batch', measure };
