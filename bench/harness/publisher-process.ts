import { DatabaseLease } from '#publisher/registry/lease';
import { createPublisher } from '#publisher/publisher';
import { sqlRegistry } from '#publisher/registry/sql-registry';
import { systemClock } from '#runtime/process/clock';
import { loadSigningKey, nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { reportReady } from '#runtime/process/lifecycle';
import { logger } from '#runtime/process/log';
import { connect } from '#runtime/postgres/connect';
import { aborted, report, runTask } from './child.js';
import type { BenchRegistry } from './registry.js';

/** Entry point of the program's publisher without its timer: each message runs one publish cycle. */

export interface PublisherTask extends Pick<
  BenchRegistry,
  'snapshotDir' | 'keyFiles' | 'origin' | 'snapshotName'
> {
  databaseUrl: string;
  recentLookupLimit: number;
}

/** Bytes that one publish cycle wrote, by the publisher's own count. */
export interface PublishCycle {
  bytes: number;
}

const SNAPSHOT_TTL_MS = 15 * 60_000;

runTask<PublisherTask>(async (task, stopping) => {
  const sql = connect(task.databaseUrl, { application: 'bench-publisher', max: 4 });
  const lock = connect(task.databaseUrl, { application: 'bench-publisher-lock', max: 1 });
  const publisher = createPublisher({
    registry: sqlRegistry(sql),
    leases: [new DatabaseLease(lock)],
    directory: task.snapshotDir,
    origin: task.origin,
    snapshotName: task.snapshotName,
    logKey: loadSigningKey(task.keyFiles.log),
    snapshotKey: loadSigningKey(task.keyFiles.snapshot),
    sha256: nativeSha256,
    verify: nativeVerify,
    clock: systemClock,
    log: logger('publisher', 'warn'),
    snapshotTtlMs: SNAPSHOT_TTL_MS,
    recentLookupLimit: task.recentLookupLimit,
  });
  const failed = new Promise<never>((_, reject) => {
    process.on('message', () => {
      const before = publisher.written().bytes;
      publisher
        .runCycle()
        .then(() => report({ bytes: publisher.written().bytes - before }), reject);
    });
  });
  reportReady();
  try {
    await Promise.race([aborted(stopping), failed]);
  } finally {
    await publisher.close();
    await Promise.all([sql.end({ timeout: 5 }), lock.end({ timeout: 5 })]);
  }
});
