import { expect } from 'vitest';
import type { TestDatabase } from './database.js';

/** Resolves when so many statements of this database wait for a lock. */
export async function untilWaiting(db: TestDatabase, count = 1): Promise<void> {
  await expect
    .poll(
      async () =>
        (
          await db.sql`
            select from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'`
        ).length,
      { timeout: 5000 },
    )
    .toBeGreaterThanOrEqual(count);
}
