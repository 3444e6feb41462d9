import { describe, expect, it } from 'vitest';
import { migrateDatabase } from '#programs/migrate-database';
import { migrateQueues } from '#runtime/queue/queues';
import { freshDatabase } from '../fixtures/database.js';

/** Held by the running migration; others wait for it. */
const ADVISORY_LOCK = 7_301_001;

describe('a stopped migration', () => {
  it('stops waiting for locks and holds none', async () => {
    const db = await freshDatabase();
    const other = await db.sql.reserve();
    await other`select pg_advisory_lock(${ADVISORY_LOCK})`;
    const stop = new AbortController();
    const migrating = migrateDatabase(db.url, undefined, stop.signal);
    const waiting = () =>
      db.sql`select from pg_stat_activity where application_name = 'migrate'
        and datname = current_database() and query like '%advisory_lock%'`;
    await expect.poll(waiting, { timeout: 10_000 }).toHaveLength(1);
    stop.abort();
    await expect(migrating).rejects.toThrow(/CONNECTION_(DESTROYED|ENDED|CLOSED)/);
    await other`select pg_advisory_unlock(${ADVISORY_LOCK})`;
    other.release();
    const held = () => db.sql`select from pg_locks where locktype = 'advisory'
      and database = (select oid from pg_database where datname = current_database())`;
    await expect.poll(held, { timeout: 10_000 }).toHaveLength(0);
    await db.drop();
  });

  it("stops waiting for the queue's tables", async () => {
    const db = await freshDatabase();
    const other = await db.sql.reserve();
    await other.unsafe('begin; lock table bullmq.migration in access exclusive mode');
    const stop = new AbortController();
    const migrating = migrateQueues(db.url, stop.signal);
    const waiting = () =>
      db.sql`select from pg_stat_activity where application_name = 'svc-migrate'
        and datname = current_database() and wait_event_type = 'Lock'`;
    await expect.poll(waiting, { timeout: 10_000 }).toHaveLength(1);
    stop.abort();
    await expect(migrating).rejects.toThrow(/Connection terminated|closed/);
    await other.unsafe('rollback');
    other.release();
    await db.drop();
  });
});
