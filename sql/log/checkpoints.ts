import { toBase64 } from '#protocol/bytes';
import type { Vkey } from '#protocol/note';
import type { Db } from '../db/transaction.js';

export interface StoredCheckpoint {
  treeSize: number;
  root: Uint8Array;
  /** The published C2SP signed note. */
  note: string;
}

const stored = (sql: Db) => sql`select tree_size as "treeSize", root, note from svc.checkpoint`;

export async function latestCheckpoint(sql: Db): Promise<StoredCheckpoint | null> {
  const [row] = await sql<StoredCheckpoint[]>`${stored(sql)} order by tree_size desc limit 1`;
  return row ?? null;
}

/**
 * Stores a signed checkpoint after the checkpoint of size `previous` (0 for the first checkpoint).
 * Compare-and-swap: two publishers cannot extend the same checkpoint.
 *
 * @returns false when `previous` is not the latest
 */
export async function insertCheckpoint(
  sql: Db,
  checkpoint: { treeSize: number; root: Uint8Array; note: string; previous: number },
): Promise<boolean> {
  const { treeSize, root, note, previous } = checkpoint;
  const inserted = await sql`
    insert into svc.checkpoint (tree_size, root, note)
    select ${treeSize}::bigint, ${root}::bytea, ${note}::text
    where ${treeSize}::bigint > ${previous}::bigint
      and ${previous}::bigint = coalesce((select max(tree_size) from svc.checkpoint), 0)
    on conflict do nothing`;
  return inserted.count === 1;
}

/** The size of the last checkpoint by one of these keys; 0 when there is none. The signature is not verified. */
export async function latestCheckpointBy(sql: Db, keys: readonly Vkey[]): Promise<number> {
  // Five characters of base64 have 30 of the 32 bits of a key id.
  const lines = keys.map(
    ({ name, keyHash }) => `\n\u2014 ${name} ${toBase64(keyHash).slice(0, 5)}`,
  );
  const [row] = await sql<{ size: number }[]>`
    select tree_size as size from svc.checkpoint
    where exists (select from unnest(${lines}::text[]) line where position(line in note) > 0)
    order by tree_size desc limit 1`;
  return row?.size ?? 0;
}

/** The smallest checkpoint with at least `treeSize` leaves, or null; it never changes. */
export async function firstCheckpointFrom(sql: Db, treeSize: number) {
  const [row] = await sql<StoredCheckpoint[]>`
    ${stored(sql)} where tree_size >= ${treeSize} order by tree_size limit 1`;
  return row ?? null;
}

export async function checkpointAt(sql: Db, treeSize: number): Promise<StoredCheckpoint | null> {
  const found = await firstCheckpointFrom(sql, treeSize);
  return found?.treeSize === treeSize ? found : null;
}

/** The names of the retired logs of this database: no checkpoint is signed for them again. */
export async function endedOrigins(sql: Db): Promise<string[]> {
  return (await sql<{ origin: string }[]>`select origin from svc.ended_log`).map(
    (row) => row.origin,
  );
}

/** The present and past names of this database's log. A delegation is signed for one of them. */
export async function knownOrigins(sql: Db): Promise<string[]> {
  const [origin] = (await latestCheckpoint(sql))?.note.split('\n') ?? [];
  return [...(origin === undefined ? [] : [origin]), ...(await endedOrigins(sql))];
}
