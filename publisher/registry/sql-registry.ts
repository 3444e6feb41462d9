import { HASH_BYTES } from '#protocol/merkle';
import { TILE_WIDTH } from '#protocol/tiles';
import { hasEnded, insertCheckpoint, latestCheckpoint } from '#sql/log/checkpoints';
import type { Db } from '#sql/db/transaction';
import {
  packageRows,
  packagesWith,
  shareChangesSince,
  sharesNow,
} from '#sql/lifecycle/share-tokens';
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

/** A leaf with its canonical bytes: a status or key entry. */
export interface OtherLeaf {
  kind: 'other';
  leafIndex: number;
  bytes: Uint8Array;
}

export type Leaf = ProofLeaf | OtherLeaf;

type SignedTree = Pick<VerifiedPrefix, 'treeSize' | 'verdictId'> & { root: Uint8Array };

/** The publisher's queries. Those that are imported are documented where they are defined. */
const QUERIES = {
  verifiedPrefix: (sql: Db): Promise<SignedTree | null> => verifiedPrefix(sql),
  latestCheckpoint,
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
