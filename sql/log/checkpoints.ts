import { mapDbErrors } from '../db/errors.js';
import type { Db } from '../db/transaction.js';
import { publishing, readHeartbeats } from '../ops/heartbeats.js';
import { AdministrationError } from '../tenants/audit.js';

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

/** Whether a log of this origin was ended here: then nothing is signed for it again. */
export function hasEnded(sql: Db, origin: string): Promise<boolean> {
  return mapDbErrors(async () => {
    const rows = await sql`select from svc.ended_log where origin = ${origin}`;
    return rows.length > 0;
  });
}

/** For these reasons a publisher refuses a database that lacks leaves which were published. */
const LEAVES_LOST: readonly (string | null)[] = ['database_behind', 'log_forked'];

/**
 * Ends the log of this database, whose leaves go on as those of another.
 *
 * @returns the size of the last checkpoint that the database knows of it
 * @throws AdministrationError also when no publisher has recorded that published leaves are lost
 */
export async function endLog(tx: Db, origin: string, reason: string): Promise<number> {
  const signed = await end(tx, origin, reason);
  // Under the publishers' lock, which the end took: none of them publishes meanwhile.
  if (LEAVES_LOST.includes(publishing(await readHeartbeats(tx)).refused)) return signed;
  throw new AdministrationError(
    'nothing shows that published leaves are lost: no publisher has refused this database for that since the last snapshot. ' +
      'Start a publisher with the SNAPSHOT_DIR that was published, or with TRUSTED_CHECKPOINT: it goes on, or records why not',
  );
}

async function end(tx: Db, origin: string, reason: string): Promise<number> {
  try {
    const [row] = await tx<
      { signed: string }[]
    >`select svc.end_log(${origin}, ${reason}) as signed`;
    return Number(row?.signed);
  } catch (error) {
    const { code, message } = error as { code?: unknown; message: string };
    if (code !== '55006' && code !== 'P0002') throw error;
    throw new AdministrationError(message, { cause: error });
  }
}
