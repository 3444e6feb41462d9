import { setTimeout as sleep } from 'node:timers/promises';
import type { Fault, Scene } from '../fault.js';

/** Postgres with all of its processes, as a machine that loses power has them ended. */
export const ALL_KILLED: Fault = {
  name: 'Postgres killed with all of its processes at once, back after 1 s',
  isFelt: true,
  holdMs: 1_000,
  inject: async ({ world: { database } }) => {
    database.killAll();
    await database.untilGone();
    return () => database.restart();
  },
};

/**
 * What keeps commits in memory for longer than this lasts: nothing is flushed by anybody. `wal_buffers`
 * holds all that is written meanwhile.
 */
export const FORGETFUL = {
  wal_writer_delay: '10s',
  wal_writer_flush_after: '1GB',
  wal_buffers: '64MB',
  bgwriter_lru_maxpages: '0',
  autovacuum: 'off',
};

/** After it has started with the settings above: sessions commit without waiting for the disk. */
export async function makeForgetful({ world: { database } }: Scene): Promise<void> {
  // Programs refuse to start so; for a session it comes before what the server was started with.
  await database.sql.unsafe('alter database svc set synchronous_commit = off');
  await database.terminateAll();
  await sleep(500);
}
