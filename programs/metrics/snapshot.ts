import type { Manifest } from '#protocol/snapshot/manifest';
import type { Clock } from '#runtime/process/clock';
import { gauge } from '#runtime/ops/instruments';
import type { Registry } from '#runtime/ops/registry';

interface Snapshot {
  manifest: Manifest;
  /** Epoch milliseconds. */
  issuedAt: number;
  validUntil: number;
}

/** Gauges of publisher and public API servers: of the published and of the served snapshot. */
export function snapshotGauges(
  registry: Registry,
  clock: Clock,
  find: () => Snapshot | null,
): void {
  const of =
    (value: (snapshot: Snapshot) => number): (() => number | null) =>
    () => {
      const snapshot = find();
      return snapshot === null ? null : value(snapshot);
    };
  gauge(
    registry,
    { name: 'svc_snapshot_generation', help: 'Generation of the snapshot', together: 'min' },
    of(({ manifest }) => manifest.generation),
  );
  gauge(
    registry,
    { name: 'svc_snapshot_age_seconds', help: 'Time since the snapshot was signed' },
    of(({ issuedAt }) => (clock.now() - issuedAt) / 1_000),
  );
  gauge(
    registry,
    {
      name: 'svc_snapshot_valid_seconds',
      help: 'Remaining validity of the snapshot; negative once expired',
      together: 'min',
    },
    of(({ validUntil }) => (validUntil - clock.now()) / 1_000),
  );
  gauge(
    registry,
    { name: 'svc_snapshot_tree_size', help: 'Leaves that the snapshot covers', together: 'min' },
    of(({ manifest }) => manifest.tree_size),
  );
  gauge(
    registry,
    { name: 'svc_snapshot_proofs', help: 'Proofs that the snapshot covers', together: 'min' },
    of(({ manifest }) => manifest.proofs),
  );
  gauge(
    registry,
    { name: 'svc_snapshot_bytes', help: 'Size of the snapshot index, over all segments' },
    of(({ manifest }) => manifest.index_parts.reduce((sum, { bytes }) => sum + bytes, 0)),
  );
}
