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
 * What a tick reads from the replica, and what it asks of the primary alone: which checkpoint was
 * signed last, whether the log has ended, and to be the only one that extends that checkpoint.
 */
export function splitRegistry(primary: RegistryView, replica: RegistryView): RegistryView {
  return {
    ...replica,
    latestCheckpoint: () => primary.latestCheckpoint(),
    hasEnded: (origin) => primary.hasEnded(origin),
    insertCheckpoint: (checkpoint) => primary.insertCheckpoint(checkpoint),
  };
}
