import { inspectReplica, type Replica, sqlReplica } from '#publisher/registry/sql-registry';
import type { ProgramContext } from '#runtime/process/lifecycle';
import { OperatorError } from '#runtime/process/operator-error';
import { connect, type Sql } from '#runtime/postgres/connect';
import { assertDatabase } from './database.js';

/** Opens a replica. Throws when the server is not a replica of the primary, or rejects the role. */
export async function openReplica(
  url: string | null,
  primary: Sql,
  { log, onStop }: Pick<ProgramContext, 'log' | 'onStop'>,
): Promise<Replica | null> {
  if (url === null) return null;
  const sql = connect(url, {
    application: 'svc-publisher-reads',
    max: 1,
    acceptsStandby: true,
  });
  onStop(() => sql.end({ timeout: 5 }));
  try {
    await assertDatabase(sql, 'publisher');
    await inspectReplica(primary, sql, (message) => log.warn(message));
  } catch (cause) {
    // Names the variable: otherwise the error would seem to be about the primary.
    const { message } = cause as Error;
    throw new OperatorError(`DATABASE_READ_URL is not usable: ${message}`, { cause });
  }
  return sqlReplica(primary, sql);
}
