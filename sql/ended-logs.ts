import type { Db } from './db.js';
import { asking } from './errors.js';
import { AdministrationError } from './administration-error.js';

/** Whether a log of this origin was ended here: then nothing is signed for it again. */
export function hasEnded(sql: Db, origin: string): Promise<boolean> {
  return asking(async () => {
    const rows = await sql`select from svc.ended_log where origin = ${origin}`;
    return rows.length > 0;
  });
}

/**
 * Ends the log of this database, whose leaves go on as those of another.
 *
 * @returns the size of the last checkpoint that the database knows of it
 */
export async function endLog(tx: Db, origin: string, reason: string): Promise<number> {
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
