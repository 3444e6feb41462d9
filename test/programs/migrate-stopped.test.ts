import { expect, it } from 'vitest';
import { migrateDatabase } from '#programs/migrate-database';
import { migrateQueues } from '#runtime/queue/backend';
import { freshDatabase } from '../fixtures/database.js';

/** The lock that a running migration holds, and for which others wait. */
const ADVISORY_LOCK = 7_301_001;

it.each<[string, string, string, (url: string, signal: AbortSignal) => Promise<unknown>]>([
  [
    'locks',
    `select pg_advisory_lock(${String(ADVISORY_LOCK)})`,
    `application_name = 'migrate' and query like '%advisory_lock%'`,
    (url, signal) => migrateDatabase(url, undefined, signal),
  ],
  [
    "the queue's tables",
    'lock table bullmq.migration in access exclusive mode',
    `application_name = 'svc-migrate' and wait_event_type = 'Lock'`,
    migrateQueues,
  ],
])('stopped migrate > stops waiting for %s and holds none', async (_, lock, wait, migrate) => {
  const db = await freshDatabase();
  const here = 'datname = current_database()';
  const other = await db.sql.reserve();
  await other.unsafe(`begin; ${lock}`);
  const stop = new AbortController();
  const migrating = migrate(db.url, stop.signal);
  const waiting = () => db.sql.unsafe(`select from pg_stat_activity where ${here} and ${wait}`);
  await expect.poll(waiting, { timeout: 10_000 }).toHaveLength(1);
  stop.abort();
  await expect(migrating).rejects.toThrow(/CONNECTION_(DESTROYED|ENDED|CLOSED)|terminated|closed/);
  other.destroy();
  const held = () => db.sql`select from pg_locks where locktype = 'advisory'
    and database = (select oid from pg_database where datname = current_database())`;
  await expect.poll(held, { timeout: 10_000 }).toHaveLength(0);
  await db.drop();
});
