import type { VerdictInHistory } from '#protocol/history';
import type { ArtifactKind } from '#protocol/status';
import { TILE_WIDTH } from '#protocol/tiles';
import { inMs } from '../db/columns.js';
import { pipeline, type Pool, readSnapshot } from '../db/transaction.js';
import { readLeaves, type StoredLeaf } from './leaves.js';

export interface StoredVerdict extends VerdictInHistory {
  firstIndex: number;
  lastIndex: number;
  root: Buffer;
  /** For a range verdict: the verifier's compact range, 32 bytes per subtree. */
  subtrees: Buffer | null;
  /** For a range verdict: the chain over its key entries. */
  keysDigest: Buffer | null;
}

export interface StoredExpiry {
  leafIndex: number;
  kind: ArtifactKind;
  /** Epoch milliseconds. */
  expiresAt: number;
}

export interface StoredTile {
  level: number;
  index: number;
  hashes: Buffer;
}

export interface CheckpointRow {
  treeSize: number;
  root: Buffer;
  note: string;
}

/** The registry's rows for a range of leaves, from one snapshot. */
export interface Chunk {
  leaves: StoredLeaf[];
  /** The tiles of these leaves, and the tile above them. */
  tiles: StoredTile[];
  /** Range verdicts that overlap, and single-leaf verdicts inside; in order of precedence. */
  verdicts: StoredVerdict[];
  expiries: StoredExpiry[];
  /** Checkpoints of sizes in (from, to]. */
  checkpoints: CheckpointRow[];
  /** The last expiry scan of the verifier, in epoch milliseconds. */
  verifierCheckedAt: number | null;
  /** Leaves below it wait for verification again after a key compromise. */
  urgentUntil: number;
  /** The size of the verified prefix. */
  verified: number;
}

export { readSnapshot as asOfOneMoment };

/** @param from a multiple of 256 */
export function readChunk(sql: Pool, from: number, to: number): Promise<Chunk> {
  return readSnapshot(sql, async (tx) => {
    const [leaves, tiles, verdicts, expiries, checkpoints, [state]] = await pipeline(
      readLeaves(tx, from, to),
      tx<StoredTile[]>`
        select level, tile_index as index, hashes from svc.tile
        where level = 0 and tile_index >= ${from / TILE_WIDTH}
            and tile_index < ${Math.ceil(to / TILE_WIDTH)}
          or level = 1 and tile_index >= ${Math.floor(from / TILE_WIDTH ** 2)}
            and tile_index <= ${Math.floor((to - 1) / TILE_WIDTH ** 2)}
        order by level, tile_index`,
      tx<(Omit<StoredVerdict, 'verifiedAt'> & { verifiedAt: Date })[]>`
        select verdict_id as "verdictId", frontier, first_index as "firstIndex",
          last_index as "lastIndex", tree_size as "treeSize", root, subtrees,
          keys_digest as "keysDigest", outcome, expired, verified_at as "verifiedAt",
          jsonb_path_query_array(checks, '$[*] ? (@.result == "fail").name') as "failedChecks"
        from (
          select * from svc.verdict where frontier and last_index >= ${from}
            and last_index < coalesce((select min(last_index) + 1 from svc.verdict
              where frontier and last_index >= ${to} - 1), ${to})
          union all
          select * from svc.verdict
          where not frontier and first_index >= ${from} and first_index < ${to}) as v
        order by tree_size, verdict_id`,
      tx<(Omit<StoredExpiry, 'expiresAt'> & { expiresAt: Date })[]>`
        select leaf_index as "leafIndex", artifact_kind as kind, expires_at as "expiresAt"
        from svc.expiry where leaf_index >= ${from} and leaf_index < ${to}`,
      tx<CheckpointRow[]>`
        select tree_size as "treeSize", root, note from svc.checkpoint
        where tree_size > ${from} and tree_size <= ${to} order by tree_size`,
      tx<{ verifierCheckedAt: Date | null; urgentUntil: number; verified: number }[]>`
        select (select done_at from svc.upkeep) as "verifierCheckedAt", urgent_until as "urgentUntil",
          coalesce((select max(last_index) + 1 from svc.verdict where frontier), 0) as verified
        from svc.scrub`,
    );
    return {
      leaves,
      tiles,
      verdicts: verdicts.map(inMs),
      expiries: expiries.map(inMs),
      checkpoints,
      verifierCheckedAt: state?.verifierCheckedAt?.getTime() ?? null,
      urgentUntil: state?.urgentUntil ?? 0,
      verified: state?.verified ?? 0,
    };
  });
}
