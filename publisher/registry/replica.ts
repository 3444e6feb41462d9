import { OperatorError } from '#runtime/process/operator-error';
import { type Pool, readSnapshot } from '#sql/db/transaction';
import { type DatabaseServer, serverOf } from '#sql/schema/migrate';
import type { RegistryView } from './registry-view.js';
import { sqlRegistry } from './sql-registry.js';

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

/** A streaming replica of `primary`, read in one transaction at a time. */
export function sqlReplica(primary: Pool, replica: Pool): Replica {
  return {
    reading: async (work) => {
      try {
        return await readSnapshot(replica, async (tx) => {
          requireCopy(await serverOf(primary), await serverOf(tx));
          return work(sqlRegistry(tx));
        });
      } catch (error) {
        if (!isConflict(error)) throw error;
        throw new ReplicaUnfit(
          'the replica of DATABASE_READ_URL took back what was being read, to go on following the primary; ' +
            'trying again. If that goes on, set hot_standby_feedback = on there.',
          { cause: error },
        );
      }
    },
  };
}

/** Warns of what would have the replica end long readings; refuses one that is no copy. */
export async function inspectReplica(
  primary: Pool,
  replica: Pool,
  warn: (message: string) => void,
): Promise<void> {
  const found = await serverOf(replica);
  requireCopy(await serverOf(primary), found);
  if (!found.isStandby) warn('DATABASE_READ_URL names the primary itself: it is spared nothing');
  else if (!found.givesFeedback) {
    warn(
      'the replica of DATABASE_READ_URL has hot_standby_feedback off: it may end readings that take longer than its max_standby_streaming_delay',
    );
  }
}

/**
 * A copy has the system identifier that initdb drew, and the database the same number in it. One that
 * follows nobody any more was promoted, and goes ways of its own; only the primary itself is no standby.
 */
function requireCopy(primary: DatabaseServer, replica: DatabaseServer): void {
  const isCopy = replica.system === primary.system && replica.database === primary.database;
  if (!isCopy) {
    throw new ReplicaUnfit(
      'DATABASE_READ_URL is no replica of the database in DATABASE_URL: name a streaming replica of it, or unset it',
    );
  }
  if (!replica.isStandby && replica.startedAt !== primary.startedAt) {
    throw new ReplicaUnfit(
      'the server of DATABASE_READ_URL is no standby any more, and not the one of DATABASE_URL: it may have a history of its own. Name a streaming replica, or unset it',
    );
  }
}

/** serialization_failure and deadlock_detected: how a standby ends what stands in recovery's way. */
function isConflict(error: unknown): boolean {
  const { code } = (error ?? {}) as { code?: unknown };
  return code === '40001' || code === '40P01';
}
