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
  const [head] = await sql<[Pick<HeadRows, 'size' | 'lastCheckpoint' | 'lastVerdict'>]>`
    select tree_size as size,
      coalesce((select max(tree_size) from svc.checkpoint), 0) as "lastCheckpoint",
      coalesce((select max(last_index) + 1 from svc.verdict where frontier), 0) as "lastVerdict"
    from svc.log_head`;
  const beyond = await sql<{ leaf: number }[]>`
    select leaf_index as leaf from svc.log_entry where leaf_index >= ${head.size}
    order by leaf_index limit 100`;
  const tilesBeyond = await sql<HeadRows['tilesBeyond']>`
    select level, tile_index as index, length(hashes) / 32 as hashes from svc.tile
    where (tile_index * 256 + length(hashes) / 32) * (256::numeric ^ level) > ${head.size}
    order by level, tile_index limit 100`;
  return { ...head, entriesBeyond: beyond.map(({ leaf }) => leaf), tilesBeyond };
}

/** The largest checkpoint and its age by the database clock, in milliseconds. */
export async function latestCheckpointTime(
  sql: Db,
): Promise<{ size: number; ageMs: number } | null> {
  const [row] = await sql<{ size: number; ageMs: number }[]>`
    select tree_size as size,
      extract(epoch from clock_timestamp() - created_at)::float8 * 1000 as "ageMs"
    from svc.checkpoint order by tree_size desc limit 1`;
  return row ?? null;
}
