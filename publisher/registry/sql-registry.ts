import { HASH_BYTES } from '#protocol/merkle';
import { TILE_WIDTH } from '#protocol/tiles';
import { OperatorError } from '#runtime/process/operator-error';
import { type Db, type Pool, readSnapshot } from '#sql/db/transaction';
import {
  packageRows,
  packagesWith,
  shareChangesSince,
  sharesNow,
} from '#sql/lifecycle/share-tokens';
import {
  hasEnded,
  insertCheckpoint,
  lastCheckpointWith,
  latestCheckpoint,
} from '#sql/log/checkpoints';
import {
  keyEntries,
  type ProofLeaf,
  proofRows,
  proofRowsAt,
  readTile,
  statusEntries,
  statusEntriesOf,
} from '#sql/log/log';
import {
  expiryScanDoneAt,
  lastVerdictId,
  verdictChangesSince,
  verdictHistories,
  verdictsForRange,
  verifiedPrefix,
  type VerifiedPrefix,
} from '#sql/log/verdicts';
import { type DatabaseServer, serverOf } from '#sql/schema/migrate';

/** A leaf with its canonical bytes: a status or key entry. */
export interface OtherLeaf {
  kind: 'other';
  leafIndex: number;
  bytes: Uint8Array;
}

export type Leaf = ProofLeaf | OtherLeaf;

type SignedTree = Pick<VerifiedPrefix, 'treeSize' | 'verdictId'> & { root: Uint8Array };

/** The publisher's queries. Imported queries are documented where they are defined. */
const QUERIES = {
  verifiedPrefix: (sql: Db): Promise<SignedTree | null> => verifiedPrefix(sql),
  latestCheckpoint,
  lastCheckpointWith,
  insertCheckpoint,
  hasEnded,
  tile: readTile,
  leafHash,
  leaves,
  proofsAt: proofRowsAt,
  statusEntries,
  statusEntriesOf,
  keyEntries,
  verdictsForRange,
  verdictHistories,
  verdictChangesSince,
  lastVerdictId,
  expiryScanDoneAt,
  shareChangesSince,
  sharesNow,
  packages: packageRows,
  packagesWith,
};
type Queries = typeof QUERIES;

/** The publisher's queries over the primary, or over one snapshot of a replica. */
export type RegistryView = {
  [Name in keyof Queries]: Queries[Name] extends (sql: Db, ...given: infer Given) => infer Result
    ? (...given: Given) => Result
    : never;
};

/** The registry in Postgres. */
export function sqlRegistry(sql: Db): RegistryView {
  const bound = Object.entries(QUERIES).map(([name, query]) => [
    name,
    (...given: never[]) => (query as (sql: Db, ...given: never[]) => unknown)(sql, ...given),
  ]);
  return Object.fromEntries(bound) as RegistryView;
}

/** The appended leaf hash at an index, 32 bytes; null without a leaf. */
async function leafHash(sql: Db, leafIndex: number): Promise<Uint8Array | null> {
  const tile = await readTile(sql, 0, Math.floor(leafIndex / TILE_WIDTH));
  const at = (leafIndex % TILE_WIDTH) * HASH_BYTES;
  return tile?.subarray(at, at + HASH_BYTES) ?? null;
}

/** The leaves with indexes in [from, to), in order. */
async function leaves(sql: Db, from: number, to: number): Promise<Leaf[]> {
  const [proofs, statuses, keys] = await Promise.all([
    proofRows(sql, from, to),
    statusEntries(sql, from, to),
    keyEntries(sql),
  ]);
  const found: Leaf[] = proofs;
  for (const { leafIndex, body } of [...statuses, ...keys]) {
    if (leafIndex >= from && leafIndex < to) found.push({ kind: 'other', leafIndex, bytes: body });
  }
  return found.sort((a, b) => a.leafIndex - b.leafIndex);
}

/** A read replica of the registry, slightly behind the primary. */
export interface Replica {
  /**
   * Runs `work` on one database snapshot of the replica.
   *
   * @throws ReplicaUnusableError for another database, or when recovery cancelled the query
   */
  reading<T>(work: (registry: RegistryView) => Promise<T>): Promise<T>;
}

/** The replica cannot be used at the moment. The registry itself may be intact. */
export class ReplicaUnusableError extends OperatorError {
  override name = 'ReplicaUnusableError';
}

export const replicaBehind = (): ReplicaUnusableError =>
  new ReplicaUnusableError(
    'the replica of DATABASE_READ_URL has not replayed all published data yet; the next cycle reads it again',
  );

/**
 * Reads go to the replica, except checkpoints, the retirement of the log, and the key entries,
 * so that no lag delays a compromise. Checkpoints are inserted in the primary.
 */
export function splitRegistry(primary: RegistryView, replica: RegistryView): RegistryView {
  return {
    ...replica,
    latestCheckpoint: () => primary.latestCheckpoint(),
    lastCheckpointWith: (text) => primary.lastCheckpointWith(text),
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
        throw new ReplicaUnusableError(
          'the replica of DATABASE_READ_URL cancelled a query that conflicted with recovery; the next cycle retries. ' +
            'If this repeats, set hot_standby_feedback = on there.',
          { cause: error },
        );
      }
    },
  };
}

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
 * A replica has the primary's system identifier and database oid. So has a promoted replica, which
 * may have diverged: a server that is not a standby must be the primary itself.
 */
function requireCopy(primary: DatabaseServer, replica: DatabaseServer): void {
  const isCopy = replica.system === primary.system && replica.database === primary.database;
  if (!isCopy) {
    throw new ReplicaUnusableError(
      'DATABASE_READ_URL does not replicate the database in DATABASE_URL: name a streaming replica of it, or unset it',
    );
  }
  if (!replica.isStandby && replica.startedAt !== primary.startedAt) {
    throw new ReplicaUnusableError(
      'the server of DATABASE_READ_URL was promoted and is not the server of DATABASE_URL: its data may have diverged. Name a streaming replica, or unset it',
    );
  }
}

/** serialization_failure and deadlock_detected: a standby cancels queries that conflict with recovery. */
function isConflict(error: unknown): boolean {
  const { code } = (error ?? {}) as { code?: unknown };
  return code === '40001' || code === '40P01';
}
