import { DatabaseClaim } from '#publisher/registry/lease';
import { createPublisher } from '#publisher/publisher';
import { sqlRegistry } from '#publisher/registry/sql-registry';
import { systemClock } from '#runtime/process/clock';
import { loadSigningKey, nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { reportReady } from '#runtime/process/lifecycle';
import { logger } from '#runtime/process/log';
import { connect } from '#runtime/postgres/connect';
import type { Ticked, TickerTask } from './ticker-task.js';

/** Entry point of a process with the publisher that the program has, which ticks when it is told to. */

const VALID_FOR_MS = 15 * 60_000;

process.once('message', (message) => {
  const task = message as TickerTask;
  const sql = connect(task.databaseUrl, { application: 'bench-publisher', max: 4 });
  const lock = connect(task.databaseUrl, { application: 'bench-publisher-lock', max: 1 });
  const publisher = createPublisher({
    registry: sqlRegistry(sql),
    claims: [new DatabaseClaim(lock)],
    directory: task.snapshotDir,
    origin: task.origin,
    snapshotName: task.snapshotName,
    logKey: loadSigningKey(task.logKeyFile),
    snapshotKey: loadSigningKey(task.snapshotKeyFile),
    sha256: nativeSha256,
    verify: nativeVerify,
    clock: systemClock,
    log: logger('publisher', 'warn'),
    snapshotTtlMs: VALID_FOR_MS,
    recentLookupLimit: task.recentLookupLimit,
  });
  const tick = async (): Promise<void> => {
    const before = publisher.written();
    const began = performance.now();
    const report = await publisher.runCycle();
    const ms = performance.now() - began;
    const { bytes, files } = publisher.written();
    const ticked: Ticked = { ms, report, bytes: bytes - before.bytes, files: files - before.files };
    process.send?.(ticked);
  };
  process.on('message', () => void tick());
  process.once('SIGTERM', () => {
    void publisher
      .close()
      .then(() => Promise.all([sql.end({ timeout: 5 }), lock.end({ timeout: 5 })]))
      .finally(() => process.disconnect());
  });
  reportReady();
});
