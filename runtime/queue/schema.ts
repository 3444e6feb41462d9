import { runMigrations } from 'bullmq';
import pg from 'pg';
import { OperatorError } from '../process/operator-error.js';
import { SCHEMA } from './backend.js';

const CONNECT_MS = 3_000;

/** @param signal cancels the query in flight */
async function asOwner<T>(
  ownerUrl: string,
  work: (client: pg.Client) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  signal?.throwIfAborted();
  const client = new pg.Client({
    connectionString: ownerUrl,
    application_name: 'svc-migrate',
    connectionTimeoutMillis: CONNECT_MS,
  });
  // A broken connection also fails the query in flight, which handles the error.
  client.on('error', () => undefined);
  await client.connect();
  // Only now: ending a client that is still connecting would neither resolve nor reject.
  const cut = (): void => void client.end().catch(() => undefined);
  if (signal?.aborted === true) cut();
  else signal?.addEventListener('abort', cut, { once: true });
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** Migrates BullMQ's tables; idempotent and safe to run concurrently. */
export async function migrateQueues(ownerUrl: string, signal?: AbortSignal): Promise<void> {
  await asOwner(ownerUrl, (client) => runMigrations(client, SCHEMA), signal);
}

/**
 * Grants `roles` row access to the queue's tables, but no DDL. Skips missing roles. The queue is no
 * source of truth, so a role gains nothing by writing forged jobs.
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

/**
 * Role of the queue dashboard: it can read the queue's tables and has no access to the registry.
 */
export const BOARD_ROLE = 'svc_board';

/** Creates a role that can only read the queue's tables. */
export async function grantQueueReading(ownerUrl: string): Promise<void> {
  await asOwner(ownerUrl, (client) =>
    client.query(`
      do $$ begin
        create role ${BOARD_ROLE} nologin;
      exception when duplicate_object or unique_violation then
        null; -- roles belong to the cluster
      end $$;
      grant usage on schema ${SCHEMA} to ${BOARD_ROLE};
      grant select on all tables in schema ${SCHEMA} to ${BOARD_ROLE};`),
  );
}

/** Rejects a role that could change jobs or read the registry. */
export async function assertMayOnlyReadQueues(databaseUrl: string): Promise<void> {
  const found = await asOwner(databaseUrl, (client) =>
    client.query<{ name: string; sees: boolean; writes: boolean; power: boolean }>(
      `select r.rolname as name, has_schema_privilege('svc', 'usage') as sees,
        exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
          cross join unnest(array['insert', 'update', 'delete', 'truncate']) as p(privilege)
          where n.nspname = $1 and c.relkind in ('r', 'p') and has_table_privilege(c.oid, p.privilege))
          as writes,
        rolsuper or rolcreaterole or rolbypassrls or rolreplication
          or exists (select from pg_auth_members m where m.member = r.oid) as power
      from pg_roles r where rolname = current_user`,
      [SCHEMA],
    ),
  );
  const [role] = found.rows;
  if (role?.sees === false && !role.writes && !role.power) return;
  throw new OperatorError(
    `the database role ${role?.name ?? '?'} has more privileges than reading the queue: connect the dashboard as ${BOARD_ROLE}`,
  );
}
