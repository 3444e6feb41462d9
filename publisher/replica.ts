import { OperatorError } from '#runtime/operator-error';
import type { RegistryView } from './registry-view.js';

/** A copy of the registry, a little behind it, that takes the reading off the primary. */
export interface Replica {
  /**
   * Runs `work` over one snapshot of the copy: nothing in it moves meanwhile.
   *
   * @throws ReplicaUnfit when it is no copy of the registry, or had to let go of the snapshot
   */
  reading<T>(work: (registry: RegistryView) => Promise<T>): Promise<T>;
}

/** Nothing can be published from the replica now. That says nothing about the registry. */
export class ReplicaUnfit extends OperatorError {
  override name = 'ReplicaUnfit';
}

export const replicaBehind = (): ReplicaUnfit =>
  new ReplicaUnfit(
    'the replica of DATABASE_READ_URL does not have everything yet that is published; waiting for it',
  );

/**
 * A tick reads from the replica, except which checkpoint was signed last, whether the log has ended,
 * and the key entries: no lag delays a compromise. Only the primary extends the last checkpoint.
 */
export function splitRegistry(primary: RegistryView, replica: RegistryView): RegistryView {
  return {
    ...replica,
    latestCheckpoint: () => primary.latestCheckpoint(),
    hasEnded: (origin) => primary.hasEnded(origin),
    keyEntries: () => primary.keyEntries(),
    leafHash: (leafIndex) => primary.leafHash(leafIndex),
    insertCheckpoint: (checkpoint) => primary.insertCheckpoint(checkpoint),
  };
}
