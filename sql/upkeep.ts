import type { Db } from './db.js';
import { mapDbErrors } from './errors.js';

/** The database's time, in epoch milliseconds. */
export function databaseTime(sql: Db): Promise<number> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ now: Date }[]>`
      select date_trunc('milliseconds', clock_timestamp()) as now`;
    if (row === undefined) throw new Error('the database told no time');
    return row.now.getTime();
  });
}

/**
 * A look at everything that may be over is finished that began at `beganAt`, in epoch milliseconds
 * of the database. Of several verifiers' looks the latest counts, unless it is one to come: the
 * database's clock was set back since, and nobody has looked for what is over by then.
 */
export function recordExpiryScan(sql: Db, beganAt: number): Promise<void> {
  return mapDbErrors(async () => {
    await sql`
      update svc.upkeep set done_at = case when done_at <= clock_timestamp() + interval '1 second'
        then greatest(done_at, ${new Date(beganAt)}::timestamptz)
        else ${new Date(beganAt)}::timestamptz end`;
  });
}

/** When the last look that was finished began, in epoch milliseconds; null when there was none. */
export function expiryScanDoneAt(sql: Db): Promise<number | null> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ done_at: Date | null }[]>`select done_at from svc.upkeep`;
    return row?.done_at?.getTime() ?? null;
  });
}
