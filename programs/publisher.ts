import { statfs } from 'node:fs/promises';
import { DatabaseLease } from '#publisher/registry/lease';
import { formatVkey } from '#protocol/note';
import { logKeysOf } from '#protocol/state/log-keys';
import {
  createPublisher,
  type Publisher,
  publisherReadiness,
  runPublisher,
  type CycleObserver,
} from '#publisher/publisher';
import { sqlRegistry } from '#publisher/registry/sql-registry';
import { makeFolder } from '#runtime/process/files';
import { publisherConfig } from '#runtime/config';
import { nativeSha256 } from '#runtime/crypto/node';
import { openSigner } from '#runtime/crypto/signer';
import { reportReady } from '#runtime/process/lifecycle';
import type { Readiness } from '#runtime/ops/health';
import { openTracing } from '#runtime/ops/tracing';
import { connect } from '#runtime/postgres/connect';
import { openStore } from '#runtime/store/open';
import { monotonicClock, systemClock } from '#runtime/clock';
import { WakeableSleep, withTimeout } from '#runtime/concurrency';
import { mapStartupDbErrors } from '#sql/db/errors';
import { logStateKeys, signingLock } from '#sql/lifecycle/log-keys';
import { VERDICTS_CHANNEL } from '#sql/log/log';
import { startHeartbeat, assertDatabase } from './database.js';
import { spanRecorder } from './metrics/traces.js';
import { publisherMetrics } from './metrics/publisher.js';
import { databaseReadings } from './metrics/readings.js';
import { pinning, readTrustedCheckpoint, readWitnessPolicy } from './trust.js';
import { openReplica } from './replica.js';
import { runService } from './service.js';

/** Limit of the last heartbeat: an unresponsive database must not block the exit. */
const LAST_BEAT_MS = 3_000;
const STATFS_MS = 1_000;
const LONGEST_IDLE_MS = 5_000;
/** Google Cloud Storage accepts one write of an object per second, and each write to a bucket is paid. */
const BUCKET_PAUSE_MS = 1_000;
const CYCLES_PER_SNAPSHOT = 20;

// Published files are public: web servers and public API servers may run as other users.
process.umask(0o022);

await runService('publisher', publisherConfig, async (program) => {
  const { config, log, ops, signal } = program;
  const logKey = await openSigner(config.logKeyFile);
  const sql = connect(config.databaseUrl, { application: 'svc-publisher', max: 4 });
  program.onStop(() => sql.end({ timeout: 5 }));
  const lock = connect(config.databaseUrl, { application: 'svc-publisher-lock', max: 1 });
  program.onStop(() => lock.end({ timeout: 5 }));
  const tracing = await openTracing('publisher', config, program);
  await assertDatabase(sql, 'publisher');
  const replica = await openReplica(config.databaseReadUrl, sql, program);

  const lastCheckpoint = await readTrustedCheckpoint(config.trustedCheckpoint);
  const store = await openStore(config.snapshotPlace);
  if (store.directory !== null) await makeFolder('SNAPSHOT_DIR', store.directory);
  const policy = readWitnessPolicy(config.witnessPolicyFile, logKey.publicKey);
  const metrics = publisherMetrics(
    ops.registry,
    databaseReadings(ops.registry, program, config.databaseUrl, 'svc-publisher-ops'),
    {
      clock: systemClock,
      isLeader: () => publisher.isLeader(),
      quorumAgeMs: () => publisher.quorumAgeMs(),
      written: () => publisher.written().bytes,
      directory: store.directory,
    },
  );
  const named = await mapStartupDbErrors(() => logStateKeys(sql, config.logOrigin));
  const publisher: Publisher = pinning('LOG_ORIGIN', () =>
    createPublisher({
      registry: sqlRegistry(sql, lock),
      ...(replica === null ? {} : { replica }),
      leases: [new DatabaseLease(lock), new DatabaseLease(lock, signingLock(logKey.publicKey))],
      directory: store,
      origin: config.logOrigin,
      logKey,
      logged: logKeysOf(nativeSha256, config.logOrigin, named.values()),
      clock: systemClock,
      monotonic: monotonicClock,
      log,
      ...(lastCheckpoint === null ? {} : { trustedCheckpoint: lastCheckpoint }),
      ...(policy && {
        witnesses: { policy, onAnswer: (...of) => metrics.witnessAnswered(...of) },
      }),
      snapshotTtlMs: config.snapshotTtl,
      maxMergeDelay: config.maxMergeDelay,
      recentLookupLimit: config.recentLookupLimit,
      onPublished: (snapshot) => metrics.published(snapshot),
    }),
  );
  log.info(
    { log_vkey: formatVkey(nativeSha256, config.logOrigin, logKey.publicKey) },
    'vkey that readers pin',
  );
  const readiness = publisherReadiness();
  const find = async (): Promise<Readiness> => {
    const { ready, details } = readiness.find();
    const { directory } = store;
    // A bucket has no disk to measure.
    const disk =
      directory === null ? null : await withTimeout(statfs(directory), STATFS_MS).catch(() => null);
    return {
      ready,
      details: {
        ...details,
        snapshot_disk: disk && {
          free_bytes: disk.bavail * disk.bsize,
          size_bytes: disk.blocks * disk.bsize,
        },
        quorum_ms_ago: policy && publisher.isLeader() ? publisher.quorumAgeMs() : null,
      },
    };
  };
  ops.readyWhen(find);
  const beat = await startHeartbeat(sql, find, program);
  let hasPublished = false;
  const traced = tracing && spanRecorder(tracing, sql, log).leaves('publish');
  const watch: CycleObserver = {
    went: (report, ms) => {
      readiness.went(report, ms);
      metrics.went(report, ms);
      if (report.outcome !== 'published') return;
      // Sends a heartbeat at once, because the last heartbeat shows the previous publisher's snapshot.
      if (!hasPublished) void beat();
      hasPublished = true;
      const { treeSize, newLeaves } = report;
      traced?.(treeSize - newLeaves, treeSize, Date.now() - ms);
    },
    failed: (error, ms) => {
      readiness.failed(error, ms);
      metrics.failed(error, ms);
    },
  };
  // Limits the pause between complete cycles, so that a new snapshot replaces the last one before its TTL ends.
  const idleMs = Math.min(LONGEST_IDLE_MS, config.snapshotTtl / CYCLES_PER_SNAPSHOT);
  const betweenCycles = new WakeableSleep();
  sql.onNotification(VERDICTS_CHANNEL, () => betweenCycles.wake());
  const leastPauseMs = store.directory === null ? BUCKET_PAUSE_MS : 0;
  const run = { signal, log, watch, idleMs, betweenCycles, leastPauseMs };
  const running = runPublisher(publisher, run).catch(async (error: unknown) => {
    // Records the reason for refusing to publish, for `admin status`.
    await withTimeout(beat(), LAST_BEAT_MS).catch(() => undefined);
    program.fail(error);
  });
  program.onStop(() => running);
  reportReady();
});
