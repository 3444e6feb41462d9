import { setTimeout as sleep } from 'node:timers/promises';
import { NO_ACTS } from './next-acts.js';
import type { Outcome } from './fault.js';
import { LOAD, openScene } from './stacks.js';
import { ALL_KILLED } from './scenarios/postgres.js';
import { runFault } from './run-fault.js';

/** Settings that keep commit records in memory for longer than the scenario lasts. */
const UNFLUSHED = {
  wal_writer_delay: '10s',
  wal_writer_flush_after: '1GB',
  wal_buffers: '64MB',
  bgwriter_lru_maxpages: '0',
  autovacuum: 'off',
};

/**
 * Checks that the fault table detects loss: kills a Postgres that acknowledges commits before it
 * writes them to disk.
 */
export async function runUnsafe(): Promise<Outcome> {
  const load = { ...LOAD, actsPerSecond: NO_ACTS };
  const scene = await openScene({ ...load, withDisks: false, settings: UNFLUSHED });
  const { database } = scene.world;
  try {
    // This setting is set for the database, because programs refuse a server with this setting.
    await database.sql.unsafe('alter database svc set synchronous_commit = off');
    await database.terminateAll();
    await sleep(500);
    const name = `unsafe: ${ALL_KILLED.name}`;
    // Lost commits never return, so a short wait is enough.
    return await runFault(scene, { ...ALL_KILLED, name, holdMs: 0, recoverMs: 1_000 });
  } finally {
    await scene.world.close();
  }
}

/** Whether the scenario failed because acknowledged admissions were lost. */
export const findsLoss = ({ lost, problems }: Outcome): boolean =>
  (lost ?? 0) > 0 && problems.length > 0;
