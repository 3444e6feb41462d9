import { mapDbErrors } from '../db/errors.js';
import type { Db } from '../db/transaction.js';
import { publishing, readHeartbeats } from '../ops/heartbeats.js';
import { AdministrationError } from '../tenants/audit.js';

export interface StoredCheckpoint {
  treeSize: number;
  root: Buffer;
  /** The published C2SP signed note. */
  note: string;
}

/** The largest signed checkpoint, or null. */
export function latestCheckpoint(sql: Db): Promise<StoredCheckpoint | null> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ tree_size: string; root: Buffer; note: string }[]>`
      select tree_size, root, note from svc.checkpoint order by tree_size desc limit 1`;
    if (row === undefined) return null;
    return { treeSize: Number(row.tree_size), root: row.root, note: row.note };
  });
}

/**
 * Stores a signed checkpoint that follows `previous` (0 for the first) by compare-and-swap, so that
 * two publishers cannot extend the same checkpoint.
 *
 * @returns false when `previous` is not the latest
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

/** The smallest checkpoint with at least `treeSize` leaves, or null; it never changes. */
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

/** The checkpoint with exactly `treeSize` leaves, or null. */
export async function checkpointAt(sql: Db, treeSize: number): Promise<StoredCheckpoint | null> {
  const found = await firstCheckpointFrom(sql, treeSize);
  return found?.treeSize === treeSize ? found : null;
}

/** Whether the log of this origin is retired: no checkpoint is signed for it again. */
export function hasEnded(sql: Db, origin: string): Promise<boolean> {
  return mapDbErrors(async () => {
    const rows = await sql`select from svc.ended_log where origin = ${origin}`;
    return rows.length > 0;
  });
}

/** The publisher's stop reasons that prove the loss of published leaves. */
const LEAVES_LOST: readonly (string | null)[] = ['database_behind', 'log_forked'];

/**
 * Retires the log of this database; its leaves continue in another log.
 *
 * @returns the size of its last checkpoint in the database
 * @throws AdministrationError also when no publisher has recorded a loss of published leaves
 */
export async function endLog(tx: Db, origin: string, reason: string): Promise<number> {
  const signed = await end(tx, origin, reason);
  // svc.end_log took the publishers' lock, so no publisher is active.
  if (LEAVES_LOST.includes(publishing(await readHeartbeats(tx)).refused)) return signed;
  throw new AdministrationError(
    'no publisher has reported a loss of published leaves since the last snapshot. ' +
      'Start a publisher with the published SNAPSHOT_DIR or with TRUSTED_CHECKPOINT: it publishes, or records the loss',
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
