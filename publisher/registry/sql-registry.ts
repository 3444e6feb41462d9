import { OperatorError } from '#runtime/process/operator-error';
import { type Db, type Pool, readSnapshot, databaseTime } from '#sql/db/transaction';
import { packageRows, shareChangesSince, sharesNow } from '#sql/lifecycle/share-tokens';
import { keyEntries, undelegatedKeyEntries } from '#sql/log/keys';
import {
  entriesBetween,
  type EntryBody,
  latestEntry,
  proofsByKey,
  readTile,
  snapshotEntriesFrom,
  treeSize,
  endedOrigins,
  endedSize,
  insertCheckpoint,
  latestCheckpoint,
  appendSnapshot,
  latestInputs,
} from '#sql/log/log';
import { type DatabaseServer, serverOf } from '#sql/schema/migrate';

/** The publisher's queries. Imported queries are documented where they are defined. */
const QUERIES = {
  latestInputs,
  treeSize,
  tile: readTile,
  entries: entriesBetween,
  keyEntries: (sql: Db, from?: number): Promise<EntryBody[]> => keyEntries(sql, from),
  undelegatedKeyEntries,
  latestEntry,
  snapshotEntriesFrom,
  proofsByKey,
  latestCheckpoint,
  insertCheckpoint,
  endedOrigins,
  endedSize,
  shareChangesSince,
  sharesNow,
  packages: packageRows,
  databaseTime,
  appendSnapshot,
};
type Queries = typeof QUERIES;

/** The publisher's queries on the primary, or on one database snapshot of a replica. */
export type RegistryView = {
  [Name in keyof Queries]: Queries[Name] extends (sql: Db, ...given: infer Given) => infer Result
    ? (...given: Given) => Result
    : never;
};

/**
 * The registry in Postgres.
 *
 * @param lease the connection that holds the publisher's lease, the only one on which it may append
 */
export function sqlRegistry(sql: Db, lease: Db): RegistryView {
  const bound = Object.entries(QUERIES).map(([name, query]) => [
    name,
    (...given: never[]) =>
      (query as (sql: Db, ...given: never[]) => unknown)(
        name === 'appendSnapshot' ? lease : sql,
        ...given,
      ),
  ]);
  return Object.fromEntries(bound) as RegistryView;
}

/** The replica cannot be used at the moment. The registry itself may be intact. */
export class ReplicaUnusableError extends OperatorError {}

export const replicaBehind = (): ReplicaUnusableError =>
  new ReplicaUnusableError(
    'the replica of DATABASE_READ_URL has not replayed all published data yet; the next cycle reads it again',
  );

/**
 * Reads go to the replica, except the last checkpoint, the retirement of logs, the snapshot entries, the time, and
 * share tokens and packages, because the log does not show whether the primary has those of the replica. Writes go to
 * the primary.
 */
export function splitRegistry(primary: RegistryView, replica: RegistryView): RegistryView {
  return {
    ...replica,
    latestCheckpoint: primary.latestCheckpoint,
    endedOrigins: primary.endedOrigins,
    endedSize: primary.endedSize,
    snapshotEntriesFrom: primary.snapshotEntriesFrom,
    shareChangesSince: primary.shareChangesSince,
    sharesNow: primary.sharesNow,
    packages: primary.packages,
    databaseTime: primary.databaseTime,
    insertCheckpoint: primary.insertCheckpoint,
    appendSnapshot: primary.appendSnapshot,
  };
}

/**
 * A streaming replica of `primary`, slightly behind it. The result runs `work` in one read-only REPEATABLE READ
 * transaction of the replica.
 *
 * @throws ReplicaUnusableError for a replica of another database, or when recovery cancelled the query
 */
export const sqlReplica =
  (primary: Pool, replica: Pool) =>
  async <T>(work: (registry: RegistryView) => Promise<T>): Promise<T> => {
    try {
      return await readSnapshot(replica, async (tx) => {
        requireCopy(await serverOf(primary), await serverOf(tx));
        return work(sqlRegistry(tx, tx));
      });
    } catch (error) {
      // serialization_failure and deadlock_detected: a standby cancels queries that conflict with recovery.
      const { code } = (error ?? {}) as { code?: unknown };
      if (code !== '40001' && code !== '40P01') throw error;
      throw new ReplicaUnusableError(
        'the replica of DATABASE_READ_URL cancelled a query that conflicted with recovery; the next cycle retries. ' +
          'If this repeats, set hot_standby_feedback = on on the replica.',
        { cause: error },
      );
    }
  };

export type Replica = ReturnType<typeof sqlReplica>;

/** Warns of settings that make the replica cancel long queries; rejects a server that does not replicate. */
export async function inspectReplica(
  primary: Pool,
  replica: Pool,
  warn: (message: string) => void,
): Promise<void> {
  const found = await serverOf(replica);
  requireCopy(await serverOf(primary), found);
  if (!found.isStandby) warn('DATABASE_READ_URL names the primary: its load is not reduced');
  else if (!found.givesFeedback) {
    warn(
      'the replica of DATABASE_READ_URL has hot_standby_feedback off: it may cancel queries that take longer than its max_standby_streaming_delay',
    );
  }
}

/**
 * A replica has the primary's system identifier and database oid. A promoted replica keeps them but
 * may have diverged, so a server that is not a standby must be the primary itself.
 */
function requireCopy(primary: DatabaseServer, replica: DatabaseServer): void {
  const isCopy = replica.system === primary.system && replica.database === primary.database;
  if (!isCopy) {
    throw new ReplicaUnusableError(
      'DATABASE_READ_URL does not replicate the database in DATABASE_URL: name a streaming replica of that database, or unset DATABASE_READ_URL',
    );
  }
  if (!replica.isStandby && replica.startedAt !== primary.startedAt) {
    throw new ReplicaUnusableError(
      'the server of DATABASE_READ_URL was promoted and is not the server of DATABASE_URL: its data may have diverged. Name a streaming replica, or unset DATABASE_READ_URL',
    );
  }
}
