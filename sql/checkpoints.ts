import type { Db } from './db.js';
import { mapDbErrors } from './errors.js';

export interface StoredCheckpoint {
  treeSize: number;
  root: Buffer;
  /** The C2SP signed note as it was published. */
  note: string;
}

/** The largest checkpoint that was ever signed, or null before the first. */
export function latestCheckpoint(sql: Db): Promise<StoredCheckpoint | null> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ tree_size: string; root: Buffer; note: string }[]>`
      select tree_size, root, note from svc.checkpoint order by tree_size desc limit 1`;
    if (row === undefined) return null;
    return { treeSize: Number(row.tree_size), root: row.root, note: row.note };
  });
}

/**
 * Stores a signed checkpoint that follows `previous` (0 before the first): compare-and-swap, so
 * that two publishers can never both extend the same checkpoint.
 *
 * @returns false when `previous` is not the latest any more
 */
export function insertCheckpoint(
  sql: Db,
  checkpoint: { treeSize: number; root: Uint8Array; note: string; previous: number },
): Promise<boolean> {
  return mapDbErrors(async () => {
    const { treeSize, root, note, previous } = checkpoint;
    const rows = await sql`
      insert into svc.checkpoint (tree_size, root, note)
      select ${treeSize}::bigint, ${Buffer.from(root)}::bytea, ${note}::text
      where ${treeSize}::bigint > ${previous}::bigint
        and ${previous}::bigint = coalesce((select max(tree_size) from svc.checkpoint), 0)
      on conflict do nothing
      returning tree_size`;
    return rows.length === 1;
  });
}

/** The smallest checkpoint of at least so many leaves, or null: it stays the same for ever. */
export function firstCheckpointFrom(sql: Db, treeSize: number): Promise<StoredCheckpoint | null> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ tree_size: string; root: Buffer; note: string }[]>`
      select tree_size, root, note from svc.checkpoint where tree_size >= ${treeSize}
      order by tree_size limit 1`;
    return row === undefined
      ? null
      : { treeSize: Number(row.tree_size), root: row.root, note: row.note };
  });
}

/** The checkpoint of exactly so many leaves, or null when none was signed. */
export async function checkpointAt(sql: Db, treeSize: number): Promise<StoredCheckpoint | null> {
  const found = await firstCheckpointFrom(sql, treeSize);
  return found?.treeSize === treeSize ? found : null;
}
