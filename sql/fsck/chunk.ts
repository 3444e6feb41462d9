import type { VerdictInHistory } from '#protocol/history';
import type { ArtifactKind, Outcome } from '#protocol/status';
import { TILE_WIDTH } from '#protocol/tiles';
import { pipeline, type Pool, type Transaction, transaction } from '../db/transaction.js';
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

/** Runs reads on one snapshot of the registry. */
export function asOfOneMoment<T>(sql: Pool, work: (tx: Transaction) => Promise<T>): Promise<T> {
  return transaction(sql, async (tx) => {
    await tx`set transaction isolation level repeatable read, read only`;
    return work(tx);
  });
}

/** @param from a multiple of 256 */
export function readChunk(sql: Pool, from: number, to: number): Promise<Chunk> {
  return asOfOneMoment(sql, async (tx) => {
    const [leaves, tiles, verdicts, expiries, checkpoints, [upkeep], [scrub]] = await pipeline(
      readLeaves(tx, from, to),
      readTiles(tx, from, to),
      readVerdicts(tx, from, to),
      tx<{ leaf_index: number; artifact_kind: ArtifactKind; expires_at: Date }[]>`
        select leaf_index, artifact_kind, expires_at from svc.expiry
        where leaf_index >= ${from} and leaf_index < ${to}`,
      tx<{ tree_size: number; root: Buffer; note: string }[]>`
        select tree_size, root, note from svc.checkpoint
        where tree_size > ${from} and tree_size <= ${to} order by tree_size`,
      tx<{ done_at: Date | null }[]>`select done_at from svc.upkeep`,
      tx<{ urgent_until: number; verified: number }[]>`
        select urgent_until,
          (select max(last_index) + 1 from svc.verdict where frontier) as verified
        from svc.scrub`,
    );
    return {
      leaves,
      tiles,
      verdicts,
      expiries: expiries.map((row) => ({
        leafIndex: Number(row.leaf_index),
        kind: row.artifact_kind,
        expiresAt: row.expires_at.getTime(),
      })),
      checkpoints: checkpoints.map((row) => ({
        treeSize: Number(row.tree_size),
        root: row.root,
        note: row.note,
      })),
      verifierCheckedAt: upkeep?.done_at?.getTime() ?? null,
      urgentUntil: Number(scrub?.urgent_until ?? 0),
      verified: Number(scrub?.verified ?? 0),
    };
  });
}

async function readTiles(tx: Transaction, from: number, to: number): Promise<StoredTile[]> {
  const first = from / TILE_WIDTH;
  const rows = await tx<{ level: number; tile_index: number; hashes: Buffer }[]>`
    select level, tile_index, hashes from svc.tile
    where level = 0 and tile_index >= ${first} and tile_index < ${Math.ceil(to / TILE_WIDTH)}
    union all
    select level, tile_index, hashes from svc.tile
    where level = 1 and tile_index >= ${Math.floor(first / TILE_WIDTH)}
      and tile_index <= ${Math.floor((to - 1) / TILE_WIDTH ** 2)}`;
  return rows.map(({ level, tile_index, hashes }) => ({
    level,
    index: Number(tile_index),
    hashes,
  }));
}

async function readVerdicts(tx: Transaction, from: number, to: number): Promise<StoredVerdict[]> {
  const rows = await tx<
    {
      verdict_id: number;
      frontier: boolean;
      first_index: number;
      last_index: number;
      tree_size: number;
      root: Buffer;
      subtrees: Buffer | null;
      keys_digest: Buffer | null;
      outcome: Outcome;
      expired: ArtifactKind[];
      verified_at: Date;
      failed_checks: string[];
    }[]
  >`
    select verdict_id, frontier, first_index, last_index, tree_size, root, subtrees, keys_digest, outcome,
      expired,
      verified_at, jsonb_path_query_array(checks, '$[*] ? (@.result == "fail").name') as failed_checks
    from (
      select * from svc.verdict where frontier and last_index >= ${from}
        and last_index < coalesce((select min(last_index) + 1 from svc.verdict
          where frontier and last_index >= ${to} - 1), ${to})
      union all
      select * from svc.verdict where not frontier and first_index >= ${from} and first_index < ${to}
    ) as v
    order by tree_size, verdict_id`;
  return rows.map((row) => ({
    verdictId: Number(row.verdict_id),
    frontier: row.frontier,
    firstIndex: Number(row.first_index),
    lastIndex: Number(row.last_index),
    treeSize: Number(row.tree_size),
    root: row.root,
    subtrees: row.subtrees,
    keysDigest: row.keys_digest,
    outcome: row.outcome,
    expired: row.expired,
    verifiedAt: row.verified_at.getTime(),
    failedChecks: row.failed_checks,
  }));
}
