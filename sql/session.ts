import type { Db } from './db.js';
import { DatabaseUnusableError, mapStartupDbErrors } from './errors.js';

/**
 * Refuses a connection on whose other end something else than a session of its own is: a pooler that
 * lends sessions by the transaction. What is set with the connection does not arrive through one, and
 * a session's lock would be held by whoever comes next.
 */
export async function requireOwnSession(sql: Db): Promise<void> {
  const [row] = await mapStartupDbErrors(
    () => sql<{ arrived: boolean }[]>`select current_setting('enable_seqscan') = 'off' as arrived`,
  );
  if (row?.arrived === true) return;
  throw new DatabaseUnusableError(
    'the settings of the connection did not reach PostgreSQL: a pooler stands between. Connect straight to it, or through ' +
      'what passes connections on as they are; behind a pooler in session mode, set enable_seqscan = off for the role',
  );
}
