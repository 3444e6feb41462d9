import { HASH_BYTES } from '#protocol/merkle';
import type { Effect } from '#protocol/status';
import { TILE_WIDTH } from '#protocol/tiles';
import { hasEnded, insertCheckpoint, latestCheckpoint } from '#sql/log/checkpoints';
import type { Db } from '#sql/db/transaction';
import { packageRows, packagesWith, shareChangesSince, sharesNow } from '#sql/lifecycle/shares';
import {
  keyEntries,
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
} from '#sql/log/verdicts';

/** Public data of a proof leaf: commitments, never a payload. */
export interface ProofLeaf {
  kind: 'proof';
  leafIndex: number;
  proofId: string;
  /** Hex. */
  aepHash: string;
  proofRecordHash: string;
  /** Epoch milliseconds. */
  acceptedAt: number;
  effect: Effect;
  isOutcome: boolean;
  environment: 'sandbox' | 'live';
  keyId: string;
}

/** A leaf with its canonical bytes: a status or key entry. */
export interface OtherLeaf {
  kind: 'other';
  leafIndex: number;
  bytes: Uint8Array;
}

export type Leaf = ProofLeaf | OtherLeaf;

/** A verdict on a single leaf. */
export interface VerdictChange {
  verdictId: number;
  leafIndex: number;
  /** Leaves of the log that the verifier saw. */
  treeSize: number;
  failedChecks: readonly string[];
  /** The key that signed the proof; null for a status or key entry. */
  keyId: string | null;
}

/** A log entry with its canonical bytes. */
interface EntryBody {
  leafIndex: number;
  body: Uint8Array;
}

/** The publisher's queries, over the primary, or over one snapshot of a replica. */
export type RegistryView = ReturnType<typeof sqlRegistry>;

/** The registry in Postgres. */
export function sqlRegistry(sql: Db) {
  return {
    /** The verified prefix, with the root that the verifier computed. */
    verifiedPrefix: (): Promise<(TreeSize & { root: Uint8Array; verdictId: number }) | null> =>
      verifiedPrefix(sql),
    latestCheckpoint: (): Promise<SignedRoot | null> => latestCheckpoint(sql),
    /** Compare-and-swap: false when `previous` is no longer the latest size. */
    insertCheckpoint: (checkpoint: SignedRoot & { previous: number }) =>
      insertCheckpoint(sql, checkpoint),
    /** Whether the log of this origin is retired. */
    hasEnded: (origin: string) => hasEnded(sql, origin),
    tile: (level: number, index: number): Promise<Uint8Array | null> => readTile(sql, level, index),
    leafHash: (leafIndex: number) => leafHash(sql, leafIndex),
    /** The leaves with indexes in [from, to), in order. */
    leaves: (from: number, to: number) => leaves(sql, from, to),
    proofsAt: (leafIndexes: number[]): Promise<ProofColumns[]> => proofRowsAt(sql, leafIndexes),
    statusEntries: (from: number, to: number): Promise<EntryBody[]> => statusEntries(sql, from, to),
    /** Status entries about the proofs, with indexes below `size`. */
    statusEntriesOf: (proofIds: string[], size: number): Promise<EntryBody[]> =>
      statusEntriesOf(sql, proofIds, size),
    keyEntries: (): Promise<EntryBody[]> => keyEntries(sql),
    verdictsForRange: (from: number, to: number) => verdictsForRange(sql, from, to),
    verdictHistories: (leafIndexes: number[]) => verdictHistories(sql, leafIndexes),
    verdictChangesSince: (verdictId: number, limit: number): Promise<VerdictChange[]> =>
      verdictChangesSince(sql, verdictId, limit),
    lastVerdictId: () => lastVerdictId(sql),
    expiryScanDoneAt: () => expiryScanDoneAt(sql),
    shareChangesSince: (changeNo: number, limit: number) => shareChangesSince(sql, changeNo, limit),
    sharesNow: (tokenHashes: string[]) => sharesNow(sql, tokenHashes),
    packages: (packageIds: string[]) => packageRows(sql, packageIds),
    packagesWith: (proofIds: string[]) => packagesWith(sql, proofIds),
  };
}

interface TreeSize {
  treeSize: number;
}

interface SignedRoot extends TreeSize {
  root: Uint8Array;
  note: string;
}

type ProofColumns = Pick<ProofLeaf, 'leafIndex' | 'effect' | 'isOutcome' | 'environment' | 'keyId'>;

/** The appended leaf hash at an index, 32 bytes; null without a leaf. */
async function leafHash(sql: Db, leafIndex: number): Promise<Uint8Array | null> {
  const tile = await readTile(sql, 0, Math.floor(leafIndex / TILE_WIDTH));
  const at = (leafIndex % TILE_WIDTH) * HASH_BYTES;
  return tile?.subarray(at, at + HASH_BYTES) ?? null;
}

async function leaves(sql: Db, from: number, to: number): Promise<Leaf[]> {
  const [proofs, statuses, keys] = await Promise.all([
    proofRows(sql, from, to),
    statusEntries(sql, from, to),
    keyEntries(sql),
  ]);
  const found: Leaf[] = proofs.map((row) => ({
    kind: 'proof',
    leafIndex: row.leafIndex,
    proofId: row.proofId,
    aepHash: row.aepHash.toString('hex'),
    proofRecordHash: row.proofRecordHash.toString('hex'),
    acceptedAt: row.at,
    effect: row.effect,
    isOutcome: row.isOutcome,
    environment: row.environment,
    keyId: row.keyId,
  }));
  for (const { leafIndex, body } of [...statuses, ...keys]) {
    if (leafIndex >= from && leafIndex < to) found.push({ kind: 'other', leafIndex, bytes: body });
  }
  return found.sort((a, b) => a.leafIndex - b.leafIndex);
}
