import type { Db } from './db.js';
import { mapStartupDbErrors } from './errors.js';

/** Which server this is, and whose copy. */
export interface DatabaseServer {
  /** Drawn by initdb; a physical copy has the same. */
  system: string;
  /** The database's number in it. */
  database: number;
  /** When this very server was started, to the microsecond: no two have the same. */
  startedAt: string;
  /** It follows another server. */
  isStandby: boolean;
  /** It tells that server what it still reads, so that nothing of it is cleaned away. */
  givesFeedback: boolean;
}

export function serverOf(sql: Db): Promise<DatabaseServer> {
  return mapStartupDbErrors(async () => {
    const [row] = await sql<DatabaseServer[]>`
      select (select system_identifier::text from pg_control_system()) as system,
        (select oid::int from pg_database where datname = current_database()) as database,
        extract(epoch from pg_postmaster_start_time())::text as "startedAt",
        pg_is_in_recovery() as "isStandby",
        current_setting('hot_standby_feedback')::boolean as "givesFeedback"`;
    if (row === undefined) throw new Error('the server says nothing of itself');
    return row;
  });
}
