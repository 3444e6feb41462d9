import { addGauges, type Registry } from '#runtime/ops/instruments';
import type { Clock } from '#runtime/clock';

interface Snapshot {
  generation: number;
  treeSize: number;
  /** Epoch milliseconds. */
  issuedAt: number;
  validUntil: number;
}

/** Gauges of the published snapshot (in the publisher) or of the served snapshot (in public API servers). */
export function snapshotGauges(
  registry: Registry,
  clock: Clock,
  find: () => Snapshot | null,
): void {
  const of = (value: (snapshot: Snapshot) => number) => (): number | null => {
    const snapshot = find();
    return snapshot && value(snapshot);
  };
  addGauges(registry, {
    svc_snapshot_generation: ['Generation of the snapshot', of(({ generation }) => generation)],
    svc_snapshot_age_seconds: [
      'Age of the snapshot',
      of(({ issuedAt }) => (clock.now() - issuedAt) / 1_000),
    ],
    svc_snapshot_valid_seconds: [
      'Remaining validity of the snapshot; negative once expired',
      of(({ validUntil }) => (validUntil - clock.now()) / 1_000),
    ],
    svc_snapshot_tree_size: ['Leaves that the snapshot covers', of(({ treeSize }) => treeSize)],
  });
}
