import { HASH_BYTES } from '#protocol/merkle';
import { TILE_WIDTH } from '#protocol/tiles';
import { hasEnded, insertCheckpoint, latestCheckpoint } from '#sql/log/checkpoints';
import type { Db } from '#sql/db/transaction';
import { shareChangesSince, packageRows, packagesWith, sharesNow } from '#sql/lifecycle/shares';
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
import type { Leaf, RegistryView } from './registry-view.js';

/** The registry in Postgres. */
export function sqlRegistry(sql: Db): RegistryView {
  return {
    verifiedPrefix: () => verifiedPrefix(sql),
    latestCheckpoint: () => latestCheckpoint(sql),
    insertCheckpoint: (checkpoint) => insertCheckpoint(sql, checkpoint),
    hasEnded: (origin) => hasEnded(sql, origin),
    tile: (level, index) => readTile(sql, level, index),
    leafHash: (leafIndex) => leafHash(sql, leafIndex),
    leaves: (from, to) => leaves(sql, from, to),
    proofsAt: (leafIndexes) => proofRowsAt(sql, leafIndexes),
    statusEntries: (from, to) => statusEntries(sql, from, to),
    statusEntriesOf: (proofIds, size) => statusEntriesOf(sql, proofIds, size),
    keyEntries: () => keyEntries(sql),
    verdictsForRange: (from, to) => verdictsForRange(sql, from, to),
    verdictHistories: (leafIndexes) => verdictHistories(sql, leafIndexes),
    verdictChangesSince: (verdictId, limit) => verdictChangesSince(sql, verdictId, limit),
    lastVerdictId: () => lastVerdictId(sql),
    expiryScanDoneAt: () => expiryScanDoneAt(sql),
    shareChangesSince: (changeNo, limit) => shareChangesSince(sql, changeNo, limit),
    sharesNow: (tokenHashes) => sharesNow(sql, tokenHashes),
    packages: (packageIds) => packageRows(sql, packageIds),
    packagesWith: (proofIds) => packagesWith(sql, proofIds),
  };
}

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
