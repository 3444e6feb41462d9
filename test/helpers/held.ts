import type { Pool } from '#sql/db/transaction';
import { eventually } from './stack.js';

/** What whoever appends to the log waits for. */
export const APPEND_LOCK = 'select from svc.log_head for update';

/** Holds what `statement` locks, until it is let go. */
export async function holdLock(sql: Pool, statement: string): Promise<() => Promise<void>> {
  const connection = await sql.reserve();
  await connection.unsafe('begin');
  await connection.unsafe(statement);
  return async () => {
    await connection.unsafe('rollback').catch(() => undefined);
    connection.release();
  };
}

/** Until a connection of such an application waits for a lock. */
export async function untilLocked(sql: Pool, application: string): Promise<void> {
  await eventually(
    async () => {
      const waiting = await sql`
        select from pg_stat_activity
        where application_name like ${application} and wait_event_type = 'Lock'
          and datname = current_database()`;
      return waiting.length > 0 ? true : null;
    },
    30_000,
    `${application} waiting for a lock`,
  );
}
