import type { PublicMetrics } from '#api/public/metrics';
import type { SnapshotPoller } from '#api/public/snapshot/poller';
import { STATUSES } from '#protocol/status';
import type { Clock } from '#runtime/process/clock';
import { Tally } from '#runtime/ops/instruments';
import type { Registry } from '#runtime/ops/registry';
import { httpMetrics } from './http.js';
import { snapshotGauges } from './snapshot.js';

export function publicMetrics(registry: Registry): PublicMetrics {
  const http = httpMetrics(registry, 'public');
  const lookups = new Tally(
    registry,
    { name: 'svc_lookups_total', help: 'Lookups answered with a verdict, by status' },
    ['status'],
  );
  const statuses = new Map(STATUSES.map((status) => [status as string, lookups.of({ status })]));
  // For unknown statuses: another version rendered the snapshot.
  const other = lookups.of({ status: 'other' });
  return {
    countRequest: (route, method, status) => http.counted(route, method, status),
    observeDuration: (route, ms) => http.took(route, ms),
    countVerdict: (status) => {
      (statuses.get(status) ?? other).n += 1;
    },
  };
}

/** Gauges of the snapshot that a public API server serves. */
export function servedGauges(
  registry: Registry,
  clock: Clock,
  poller: Pick<SnapshotPoller, 'current'>,
): void {
  snapshotGauges(registry, clock, () => poller.current?.opened ?? null);
}
