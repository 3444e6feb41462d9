import { statfs } from 'node:fs/promises';
import type { OpenedLocation } from '#protocol/snapshot/location';
import { parseTime } from '#protocol/time';
import { LeaseLostError } from '#publisher/errors';
import type { CycleObserver } from '#publisher/publisher';
import { addGauges, distribution, SECONDS, Tally, type Registry } from '#runtime/ops/instruments';
import type { Clock } from '#runtime/clock';
import { StoreError } from '#runtime/store/store';
import { readUpkeep, databaseBytes, logAndCheckpoint } from '#sql/ops/queries';
import type { Readings } from './readings.js';
import { snapshotGauges } from './snapshot.js';

export interface PublisherMetrics extends Required<CycleObserver> {
  published(snapshot: OpenedLocation): void;
  witnessAnswered(witness: string, outcome: 'cosigned' | 'failed'): void;
}

/** Gauges of the last publication, absent while another publisher is known to hold the lease. */
export function publisherMetrics(
  registry: Registry,
  readings: Readings,
  from: {
    clock: Clock;
    isLeader: () => boolean;
    written: () => number;
    /** The snapshot directory; null when the snapshot is in a bucket. */
    directory: string | null;
    /** 0 if no witness is configured. */
    quorumAgeMs: () => number;
  },
): PublisherMetrics {
  const { clock, isLeader, written, directory, quorumAgeMs } = from;
  const log = readings.every(5_000, 'log', () => logAndCheckpoint(readings.sql));
  const size = readings.every(30_000, 'database_size', () => databaseBytes(readings.sql));
  const disk = directory === null ? null : readings.every(10_000, 'disk', () => statfs(directory));
  const upkeep = readings.every(30_000, 'maintenance', () => readUpkeep(readings.sql));
  let latest: OpenedLocation | null = null;
  let isStoreUp = true;
  const ticks = distribution(
    registry,
    'svc_publish_duration_seconds',
    'Duration of a publish cycle',
    SECONDS.long,
  );
  const failures = new Tally(registry, 'svc_publish_failures_total', 'Failed publish cycles').of(
    {},
  );
  snapshotGauges(registry, clock, () =>
    latest === null
      ? null
      : {
          generation: latest.index,
          treeSize: latest.snapshot.logs[0]!.size,
          issuedAt: parseTime(latest.snapshot.time),
          validUntil: latest.validUntil,
        },
  );
  addGauges(registry, {
    svc_publisher_is_leader: [
      '1 while this publisher holds the lease, else 0',
      () => (isLeader() ? 1 : 0),
    ],
    svc_snapshot_lag_leaves: [
      'Log leaves not covered by the snapshot',
      () => latest && log.value && Math.max(0, log.value.leaves - latest.snapshot.logs[0]!.size),
    ],
    svc_checkpoint_tree_size: [
      'Tree size of the last signed checkpoint',
      () => log.value?.checkpoint?.treeSize,
    ],
    svc_checkpoint_lag_leaves: [
      'Log leaves not covered by a checkpoint',
      () => log.value?.checkpoint && Math.max(0, log.value.leaves - log.value.checkpoint.treeSize),
    ],
    svc_checkpoint_age_seconds: [
      'Time since the last checkpoint was signed',
      () =>
        log.value?.checkpoint && Math.max(0, (clock.now() - log.value.checkpoint.signedAt) / 1_000),
    ],
    svc_witness_quorum_age_seconds: [
      'Time since a checkpoint with the quorum of witnesses was published',
      () => {
        const age = isLeader() ? quorumAgeMs() : null;
        return age && age / 1_000;
      },
    ],
    svc_snapshot_store_up: [
      '0 when the last publish cycle failed because of the bucket of the snapshot, else 1',
      () => (isStoreUp ? 1 : 0),
    ],
    svc_database_bytes: ['Size of the database on disk', () => size.value],
    svc_snapshot_free_bytes: [
      'Free space on the disk of the snapshot directory',
      () => disk?.value && disk.value.bavail * disk.value.bsize,
    ],
    svc_snapshot_size_bytes: [
      'Size of the disk of the snapshot directory',
      () => disk?.value && disk.value.blocks * disk.value.bsize,
    ],
    svc_maintenance_age_seconds: [
      'Time since the last recorded backup or fsck without findings; since the migration if none is recorded',
      () =>
        upkeep.value?.maintenance.map(({ kind, since, endedAt }) => ({
          labels: { kind },
          value: Math.max(0, (clock.now() - (endedAt ?? since)) / 1_000),
        })),
      ['kind'],
    ],
    svc_fsck_corrupt: [
      '1 after fsck found corruption, until a run of registry and snapshot is clean, else 0',
      () =>
        upkeep.value && Number(upkeep.value.maintenance.some(({ failedAt }) => failedAt !== null)),
    ],
    svc_archive_age_seconds: [
      'Time since PostgreSQL archived a WAL segment; 0 without an archive',
      () => upkeep.value && (upkeep.value.archiveAgeMs ?? 0) / 1_000,
    ],
    svc_replication_lag_bytes: [
      'WAL that the slowest replication slot has not received; 0 without a slot',
      () => upkeep.value?.replicationBytes,
    ],
  });
  const bytes = new Tally(
    registry,
    'svc_snapshot_written_bytes_total',
    'Bytes written into the snapshot',
  ).of({});
  const help = 'Requests to witnesses to cosign a checkpoint, by outcome';
  const labels = ['witness', 'outcome'] as const;
  const cosignatures = new Tally(registry, 'svc_witness_cosignatures_total', help, labels);
  const took = (ms: number): void => {
    ticks.observe(ms / 1_000);
    bytes.n = written();
  };
  return {
    published: (snapshot) => {
      latest = snapshot;
    },
    witnessAnswered: (witness, outcome) => {
      cosignatures.of({ witness, outcome }).n += 1;
    },
    went: (report, ms) => {
      took(ms);
      isStoreUp = true;
      // Another publisher holds the lease, so the values of this publisher are outdated.
      if (report.outcome === 'standby') latest = null;
    },
    failed: (error, ms) => {
      took(ms);
      isStoreUp = !(error instanceof StoreError);
      if (error instanceof LeaseLostError) latest = null;
      else failures.n += 1;
    },
  };
}
