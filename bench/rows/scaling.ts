import { availableParallelism } from 'node:os';
import { connect } from '#runtime/postgres/connect';
import { logger } from '#runtime/process/log';
import { urlOf } from '../service/child.js';
import { UNLIMITED } from '../service/limits.js';
import { startProgram } from '../service/programs.js';
import { openBenchRegistry } from '../service/registry.js';
import type { BenchContext, Measurement, Row } from '../row.js';
import { scalingRows, type Scaled } from './scaling-rows.js';
import { sendBatches } from '../batches/send-batches.js';
import { settleBacklog } from '../service/settle-backlog.js';

/** How settling grows with worker processes, and what the append lock lets it grow to. */
export const scaling: Measurement = { name: 'scaling', measure };

const WORKERS = [1, 2, 4];

async function measure({ quick, dir, redisUrl, signal }: BenchContext): Promise<Row[]> {
  const registry = await openBenchRegistry(dir, logger('bench', 'warn'));
  const owner = connect(registry.ownerUrl, { application: 'bench', max: 1 });
  const engine = startProgram('engine', registry, {
    recentLookupLimit: 1,
    redisUrl,
    env: UNLIMITED,
  });
  try {
    const engineUrl = await urlOf(engine, 'the engine');
    const begin = () => sendBatches(registry, engineUrl, quick ? 3_000 : 20_000);
    const scaled: Scaled[] = [];
    for (const workers of WORKERS) {
      const settled = await settleBacklog(registry, owner, workers, { redisUrl, begin, signal });
      scaled.push({ workers, ...settled });
    }
    return scalingRows(scaled, availableParallelism());
  } finally {
    await engine.stop();
    await owner.end({ timeout: 5 });
    await registry.close();
  }
}
