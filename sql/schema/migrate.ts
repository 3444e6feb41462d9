import { setTimeout as sleep } from 'node:timers/promises';
import { mapStartupDbErrors } from '../db/errors.js';
import type { Db, Pool, Transaction } from '../db/transaction.js';
import { type Migration, readMigrations } from './folder.js';
import { type IndexStatement, runIndexStatement } from './index-migration.js';
import { SchemaMismatchError } from './version.js';

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

/** Somebody else's transaction holds what a migration has to lock, and does not end. */
export class MigrationBlockedError extends Error {
  override readonly name = 'MigrationBlockedError';
  readonly forOperator = true;
}

export interface MigrateOptions {
  /** How long a migration waits for one lock: so long may the traffic behind it wait too. */
  lockTimeoutMs: number;
  /** How long it is tried again before that is given up. */
  patienceMs: number;
}

export const MIGRATE_DEFAULTS: MigrateOptions = { lockTimeoutMs: 500, patienceMs: 5 * 60_000 };

const ADVISORY_LOCK = 7_301_001;
const ASK_AGAIN_MS = 100;
/** Between two attempts, so that what waited behind the first gets through. */
const PAUSE_MS = 500;
const LOCK_NOT_AVAILABLE = '55P03';
const DEADLOCK = '40P01';

/**
 * Brings the schema up to the newest migration of `folder` and returns the names it applied.
 * Each migration is one transaction, or one statement that says it cannot be in one. Several
 * starters at once migrate once: an advisory lock serialises them. A database that is ahead, or whose
 * history differs, is refused.
 *
 * Programs may serve meanwhile. Whoever waits for a table's lock has everybody wait who comes after,
 * so a migration never waits for long: it lets go of all its locks, and comes again.
 */
export async function migrate(
  sql: Pool,
  folder: string,
  options: MigrateOptions = MIGRATE_DEFAULTS,
): Promise<string[]> {
  const migrations = await readMigrations(folder);
  const connection = await sql.reserve();
  try {
    // Another starter's migrations, and long ones of our own, are waited for.
    await mapStartupDbErrors(() =>
      connection.unsafe('set statement_timeout = 0; set lock_timeout = 0').then(() => undefined),
    );
    await untilOurs(connection);
    await prepare(connection, options);
    const done = await connection<{ version: number; name: string; digest: string }[]>`
      select version, name, digest from public.svc_migration order by version`;
    for (const row of done) {
      const known = migrations[row.version - 1];
      if (known === undefined) {
        throw new SchemaMismatchError(
          `the database has migration ${row.name}, which this version does not know: run the version that made it, or a newer one`,
        );
      }
      if (known.digest !== row.digest) {
        throw new SchemaMismatchError(`migration ${row.name} was applied with another text`);
      }
    }
    const applied: string[] = [];
    for (const migration of migrations.slice(done.length)) {
      await (migration.outside === null
        ? patiently(connection, migration.name, options, () => apply(connection, migration))
        : applyOutside(connection, migration, migration.outside, options));
      applied.push(migration.name);
    }
    return applied;
  } finally {
    // A lock that cannot be given back goes with its connection.
    await connection
      .unsafe(
        `select pg_advisory_unlock(${ADVISORY_LOCK}); reset statement_timeout; reset lock_timeout`,
      )
      .then(
        () => connection.release(),
        () => connection.destroy(),
      );
  }
}

/** The list of what was applied. Every program reads it when it starts. */
async function prepare(connection: Transaction, options: MigrateOptions): Promise<void> {
  await connection`
    create table if not exists public.svc_migration (
      version integer primary key, name text not null, digest text not null,
      applied_at timestamptz not null default now(),
      breaking boolean not null default false)`;
  const [marked] = await connection`
    select from pg_attribute
    where attrelid = 'public.svc_migration'::regclass and attname = 'breaking'`;
  if (marked === undefined) {
    await patiently(connection, 'of the list of migrations', options, () =>
      connection.unsafe(
        'alter table public.svc_migration add column breaking boolean not null default false',
      ),
    );
  }
  await connection.unsafe('grant select on public.svc_migration to public');
}

/**
 * Asked for again and again, since a statement that waits for it would be a transaction that an index
 * being built has to wait for: each would wait for the other.
 */
async function untilOurs(connection: Transaction): Promise<void> {
  for (;;) {
    const [row] = await connection<{ ours: boolean }[]>`
      select pg_try_advisory_lock(${ADVISORY_LOCK}) as ours`;
    if (row?.ours === true) return;
    await sleep(ASK_AGAIN_MS);
  }
}

async function apply(connection: Transaction, migration: Migration): Promise<void> {
  await connection.unsafe(migration.text);
  await record(connection, migration);
}

/** Recorded once it is done; whoever dies before that leaves something that the next run begins anew. */
async function applyOutside(
  connection: Transaction,
  migration: Migration,
  statement: IndexStatement,
  { patienceMs }: MigrateOptions,
): Promise<void> {
  const deadline = Date.now() + patienceMs;
  for (;;) {
    try {
      await runIndexStatement(connection, migration.text, statement, deadline - Date.now());
      break;
    } catch (error) {
      const { code } = error as { code?: unknown };
      if (code !== LOCK_NOT_AVAILABLE && code !== DEADLOCK) throw error;
      if (code === LOCK_NOT_AVAILABLE || Date.now() > deadline) {
        throw new MigrationBlockedError(
          `migration ${migration.name} waits for a transaction that does not end: end it (the oldest xact_start in pg_stat_activity), and run migrate again. An index that it began may be there, marked invalid; the next run drops it and builds it anew`,
          { cause: error },
        );
      }
    }
  }
  await record(connection, migration);
}

async function record(connection: Transaction, migration: Migration): Promise<void> {
  await connection`
    insert into public.svc_migration (version, name, digest, breaking)
    values (${migration.version}, ${migration.name}, ${migration.digest}, ${migration.breaking})`;
}

/** One transaction, as often as it takes to get its locks without keeping others waiting. */
async function patiently(
  connection: Transaction,
  name: string,
  { lockTimeoutMs, patienceMs }: MigrateOptions,
  work: () => Promise<unknown>,
): Promise<void> {
  const deadline = Date.now() + patienceMs;
  for (;;) {
    try {
      await connection.unsafe(`begin; set local lock_timeout = ${lockTimeoutMs}`);
      await work();
      await connection.unsafe('commit');
      return;
    } catch (error) {
      await connection.unsafe('rollback');
      const { code } = error as { code?: unknown };
      if (code !== LOCK_NOT_AVAILABLE && code !== DEADLOCK) throw error;
      if (Date.now() > deadline) {
        throw new MigrationBlockedError(
          `migration ${name} did not get its locks, and nothing of it was applied: end the transaction that holds them (the oldest xact_start in pg_stat_activity), and run migrate again`,
          { cause: error },
        );
      }
      await sleep(PAUSE_MS * (0.5 + Math.random()));
    }
  }
}
