import fs, { type FileHandle } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { relative } from 'node:path';
import { DatabaseClaim } from '#publisher/registry/lease';
import { createPublisher } from '#publisher/publisher';
import { sqlRegistry } from '#publisher/registry/sql-registry';
import { loadSigningKey, nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { logger } from '#runtime/process/log';
import { connect } from '#runtime/postgres/connect';

/**
 * Entry point of a process: the publisher as the program has it, which kills itself with SIGKILL at
 * a point of its ticks that its starter names. It changes nothing in the publisher: the calls of the
 * system that write are replaced before any of its modules asks for them.
 */

/** Where it dies. Numbers count from 0, over all ticks. */
export type KillPoint =
  /** Write `number`: half of its staged file written, all of it, or the file in its place. */
  | { write: number; at: 'half staged' | 'staged' | 'in place' }
  /** Removal `number` of a file by the janitor, before it or after. */
  | { removal: number; at: 'before' | 'after' }
  /** Around the commit of the checkpoint in the database. */
  | { checkpoint: 'before' | 'after' };

export interface DyingTask {
  databaseUrl: string;
  logKeyFile: string;
  snapshotKeyFile: string;
  origin: string;
  snapshotName: string;
}

export interface DyingTicks {
  directory: string;
  /** Null: it lives, and reports. */
  kill: KillPoint | null;
  /** The clock of each tick, epoch milliseconds. */
  at: number[];
}

export interface LivedThrough {
  /** What was put in its place, in order, and what the janitor removed. */
  writes: string[];
  removals: string[];
}

/** Nothing after it happens: the signal reaches who sends it before the call returns. */
const die = (): void => void process.kill(process.pid, 'SIGKILL');

let ticks: DyingTicks | null = null;
const writes: string[] = [];
const removals: string[] = [];
let staged = 0;

const isDue = (number: number, at: string): boolean => {
  const kill = ticks?.kill ?? null;
  return kill !== null && 'write' in kill && kill.write === number && kill.at === at;
};

const { open, rename, rm } = fs;
fs.open = async (path, flags, mode) => {
  const handle: FileHandle = await open(path, flags, mode);
  if (flags !== 'w') return handle;
  const number = staged++;
  const writeFile = handle.writeFile.bind(handle);
  handle.writeFile = async (data, options) => {
    if (!isDue(number, 'half staged')) return writeFile(data, options);
    const bytes = data as Uint8Array;
    await writeFile(bytes.subarray(0, Math.ceil(bytes.length / 2)), options);
    die();
  };
  return handle;
};
fs.rename = async (from, to) => {
  const number = writes.push(relative(ticks?.directory ?? '', String(to))) - 1;
  if (isDue(number, 'staged')) die();
  await rename(from, to);
  if (isDue(number, 'in place')) die();
};
fs.rm = async (path, options) => {
  // The staging of those that died before is emptied as a whole: no file of the snapshot.
  if (options?.recursive === true) return rm(path, options);
  const number = removals.push(relative(ticks?.directory ?? '', String(path))) - 1;
  const kill = ticks?.kill ?? null;
  const isNow = kill !== null && 'removal' in kill && kill.removal === number;
  if (isNow && kill.at === 'before') die();
  await rm(path, options);
  if (isNow && kill.at === 'after') die();
};
syncBuiltinESMExports();

process.once('message', (message) => {
  const task = message as DyingTask;
  // It has one tick to die in, and opens connections in the middle of it: on a machine that is busy
  // with other tests a program would fail, and try again with its next tick.
  const patient = { connectTimeoutMs: 60_000, lockTimeoutMs: 30_000 };
  const sql = connect(task.databaseUrl, { application: 'dying-publisher', max: 2, ...patient });
  const lock = connect(task.databaseUrl, {
    application: 'dying-publisher-lock',
    max: 1,
    ...patient,
  });
  const keys = {
    logKey: loadSigningKey(task.logKeyFile),
    snapshotKey: loadSigningKey(task.snapshotKeyFile),
  };
  process.once('message', (next) => void run(next as DyingTicks));

  async function run(all: DyingTicks): Promise<void> {
    ticks = all;
    const registry = sqlRegistry(sql);
    const { insertCheckpoint } = registry;
    registry.insertCheckpoint = async (checkpoint) => {
      const kill = all.kill !== null && 'checkpoint' in all.kill ? all.kill.checkpoint : null;
      if (kill === 'before') die();
      const inserted = await insertCheckpoint(checkpoint);
      if (kill === 'after') die();
      return inserted;
    };
    let now = 0;
    const publisher = createPublisher({
      ...keys,
      registry,
      claims: [new DatabaseClaim(lock)],
      directory: all.directory,
      origin: task.origin,
      snapshotName: task.snapshotName,
      sha256: nativeSha256,
      verify: nativeVerify,
      clock: { now: () => now },
      log: logger('publisher', 'error'),
      snapshotTtlMs: 15 * 60_000,
      recentLookupLimit: 100,
    });
    for (now of all.at) await publisher.runCycle();
    await publisher.close();
    await Promise.all([sql.end({ timeout: 5 }), lock.end({ timeout: 5 })]);
    const lived: LivedThrough = { writes, removals };
    process.send?.(lived, () => process.disconnect());
  }

  // Connected before it is needed, so that whoever waits for the kill does not wait for this.
  void Promise.all([sql`select`, lock`select`]).then(() => process.send?.({ ready: true }));
});
