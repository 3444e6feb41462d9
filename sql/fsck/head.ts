import type { Db } from '../db/transaction.js';

/** The log head and the rows that contradict it, from one snapshot. */
export interface HeadRows {
  size: number;
  /** Log rows at or beyond its size. */
  entriesBeyond: number[];
  tilesBeyond: { level: number; index: number; hashes: number }[];
  lastCheckpoint: number;
  lastVerdict: number;
}

export async function readHead(sql: Db): Promise<HeadRows> {
  const [head] = await sql<{ size: number; checkpoint: number; verdict: number }[]>`
    select tree_size as size,
      coalesce((select max(tree_size) from svc.checkpoint), 0) as checkpoint,
      coalesce((select max(last_index) + 1 from svc.verdict where frontier), 0) as verdict
    from svc.log_head`;
  const size = Number(head?.size ?? 0);
  const beyond = await sql<{ leaf_index: number }[]>`
    select leaf_index from svc.log_entry where leaf_index >= ${size} order by leaf_index limit 100`;
  const tiles = await sql<{ level: number; tile_index: number; hashes: number }[]>`
    select level, tile_index, length(hashes) / 32 as hashes from svc.tile
    where (tile_index * 256 + length(hashes) / 32) * (256::numeric ^ level) > ${size}
    order by level, tile_index limit 100`;
  return {
    size,
    entriesBeyond: beyond.map((row) => Number(row.leaf_index)),
    tilesBeyond: tiles.map(({ level, tile_index, hashes }) => ({
      level,
      index: Number(tile_index),
      hashes,
    })),
    lastCheckpoint: Number(head?.checkpoint ?? 0),
    lastVerdict: Number(head?.verdict ?? 0),
  };
}

/** The largest checkpoint and its age by the database clock, in milliseconds. */
export async function latestCheckpointTime(
  sql: Db,
): Promise<{ size: number; ageMs: number } | null> {
  const [row] = await sql<{ tree_size: number; age: number }[]>`
    select tree_size, extract(epoch from clock_timestamp() - created_at)::float8 * 1000 as age
    from svc.checkpoint order by tree_size desc limit 1`;
  return row === undefined ? null : { size: Number(row.tree_size), ageMs: row.age };
}
