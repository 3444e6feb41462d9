import { runMigrations } from 'bullmq';
import pg from 'pg';
import { SCHEMA } from './queue-backend.js';

async function asOwner<T>(ownerUrl: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: ownerUrl, application_name: 'svc-migrate' });
  // A connection that breaks also fails the query under way, which is where it is handled.
  client.on('error', () => undefined);
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** Brings the queue's tables in the database up to date; safe to run again and by several at once. */
export async function migrateQueues(ownerUrl: string): Promise<void> {
  await asOwner(ownerUrl, (client) => runMigrations(client, SCHEMA));
}

/**
 * Lets `roles` use the queue's tables: rows only, nothing that makes or changes tables. Roles that do not exist are
 * passed over. The queue is no source of truth, so a role that writes rubbish into it gains nothing.
 */
export async function grantQueueAccess(ownerUrl: string, roles: readonly string[]): Promise<void> {
  await asOwner(ownerUrl, async (client) => {
    const found = await client.query<{ rolname: string }>(
      'select rolname from pg_roles where rolname = any($1)',
      [roles],
    );
    for (const { rolname } of found.rows) {
      const role = client.escapeIdentifier(rolname);
      await client.query(`
        grant usage on schema ${SCHEMA} to ${role};
        grant select, insert, update, delete on all tables in schema ${SCHEMA} to ${role};
        revoke insert, update, delete on ${SCHEMA}.migration from ${role};
        grant usage, select on all sequences in schema ${SCHEMA} to ${role};
        grant execute on all functions in schema ${SCHEMA} to ${role};`);
    }
  });
}
