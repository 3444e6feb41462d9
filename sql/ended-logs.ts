import type { Db } from './db.js';
import { mapDbErrors } from './errors.js';
import { AdministrationError } from './administration-error.js';
import { publishing, readHeartbeats } from './heartbeats.js';

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
