import type { Manifest } from '#protocol/snapshot/manifest';
import type { TickWatch } from '#publisher/run';
import { LeadershipLost } from '#publisher/stopped';
import { parseTime } from '#protocol/time';
import type { Clock } from '#runtime/clock';
import { distribution, gauge, SECONDS, Tally } from '#runtime/ops/instruments';
import type { Registry } from '#runtime/ops/registry';
import { snapshotGauges } from './snapshot.js';

export interface PublisherMetrics extends TickWatch {
  published(manifest: Manifest): void;
}

/**
 * What this publisher made public last is told as long as no other one is known to lead; ages and
 * what is left of validities are reckoned when somebody asks.
 *
 * @param leads whether it led when it last looked
 * @param written bytes that this process wrote into the snapshot directory
 * @param leaves of the log in the database; null while that is not known
 */
export function publisherMetrics(
  registry: Registry,
  from: { clock: Clock; leads: () => boolean; written: () => number; leaves: () => number | null },
): PublisherMetrics {
  const { clock, leads, written, leaves } = from;
  let latest: Manifest | null = null;
  const ticks = distribution(
    registry,
    { name: 'svc_tick_seconds', help: 'How long a tick of the publisher took' },
    SECONDS.long,
  );
  const failures = new Tally(registry, {
    name: 'svc_tick_failures_total',
    help: 'Ticks of the publisher that failed',
  }).of({});
  gauge(registry, { name: 'svc_publisher_leads', help: '1 while it leads, else 0' }, () =>
    leads() ? 1 : 0,
  );
  snapshotGauges(registry, clock, () =>
    latest === null
      ? null
      : {
          manifest: latest,
          issuedAt: parseTime(latest.issued_at),
          validUntil: parseTime(latest.valid_until),
        },
  );
  gauge(
    registry,
    { name: 'svc_snapshot_lag_leaves', help: 'Leaves of the log that the snapshot does not cover' },
    () => {
      const all = leaves();
      return latest === null || all === null ? null : Math.max(0, all - latest.tree_size);
    },
  );
  const bytes = new Tally(registry, {
    name: 'svc_snapshot_written_bytes_total',
    help: 'Bytes written into the snapshot directory',
  }).of({});
  const took = (ms: number): void => {
    ticks.observe(ms / 1_000);
    bytes.n = written();
  };
  return {
    published: (manifest) => {
      latest = manifest;
    },
    went: (report, ms) => {
      took(ms);
      // Another one publishes: what this one published is the past.
      if (report.outcome === 'standby') latest = null;
    },
    failed: (error, ms) => {
      took(ms);
      if (error instanceof LeadershipLost) latest = null;
      else failures.n += 1;
    },
  };
}
