import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '#runtime/process/operator-error';
import { mapStartupDbErrors } from '../db/errors.js';
import { type Db, type Pool, requirePrimary, type Transaction } from '../db/transaction.js';

export interface DatabaseServer {
  /** The system identifier from initdb; physical copies share it. */
  system: string;
  database: number;
  /** The start time of this server, in microseconds: it differs between servers. */
  startedAt: string;
  isStandby: boolean;
  /** hot_standby_feedback: the primary keeps rows that this standby still reads. */
  givesFeedback: boolean;
}

export async function serverOf(sql: Db): Promise<DatabaseServer> {
  const [row] = await mapStartupDbErrors(
    () => sql<[DatabaseServer]>`
      select (select system_identifier::text from pg_control_system()) as system,
        (select oid::int from pg_database where datname = current_database()) as database,
        extract(epoch from pg_postmaster_start_time())::text as "startedAt",
        pg_is_in_recovery() as "isStandby",
        current_setting('hot_standby_feedback')::boolean as "givesFeedback"`,
  );
  return row;
}

/** Longest wait for one lock; other statements queue behind the wait. */
export const LOCK_TIMEOUT_MS = 500;
const PATIENCE_MS = 5 * 60_000;
const ADVISORY_LOCK = 7_301_001;
/** Pause between two attempts, so that queued statements can run. */
const PAUSE_MS = 500;
/**
 * The digest of the last migration that the baseline replaced. A database with that migration has the schema of the
 * baseline.
 */
export const REPLACED = '62acfc5898b76fdd4a2d44adf7948b0f8bf241621059ad8375f690e3c6c3f04d';
const LOCK_NOT_AVAILABLE = '55P03';
const DEADLOCK = '40P01';

/**
 * Applies the pending migrations of `folder` and returns their names. Each migration is one
 * transaction. An advisory lock serialises concurrent runs. Accepts additive migrations of a later
 * version, because programs may be rolled back; rejects a breaking migration and a different
 * history. Programs may serve meanwhile. Statements queue behind a migration that waits for a table
 * lock, so the migration waits only briefly, releases all locks and tries again.
 */
export async function migrate(
  sql: Pool,
  folder: string,
  patienceMs = PATIENCE_MS,
): Promise<string[]> {
  const migrations = await readMigrations(folder);
  const known = { first: migrations[0]!.version, last: migrations.at(-1)!.version };
  const connection = await mapStartupDbErrors(() => sql.reserve());
  try {
    // Sets no timeouts: other runs and long migrations must be able to finish.
    await mapStartupDbErrors(async () => {
      // PostgreSQL ends the wait for the lock of a run that was killed.
      await connection.unsafe(
        `set statement_timeout = 0; set lock_timeout = 0; set client_connection_check_interval = '1s'`,
      );
      await requirePrimary(connection);
    });
    await connection`select pg_advisory_lock(${ADVISORY_LOCK})`;
    // Every role may read the list of migrations, because every program checks it at its start.
    await connection.unsafe(`
      create table if not exists public.svc_migration (
        version integer primary key, name text not null, digest text not null,
        applied_at timestamptz not null default now(),
        breaking boolean not null default false);
      grant select on public.svc_migration to public`);
    const done = await connection<{ version: number; name: string; digest: string }[]>`
      select version, name, digest from public.svc_migration order by version`;
    await requireSchema(connection, known, 0);
    const version = done.at(-1)?.version ?? 0;
    if (version === 0) await requireUsable(connection);
    for (const row of done) {
      const migration = migrations.find((one) => one.version === row.version);
      if (migration === undefined || migration.digest === row.digest) continue;
      if (row.version !== known.first || row.digest !== REPLACED) {
        throw new SchemaMismatchError(
          `migration ${row.name} was applied with a different text: run the version that applied it`,
        );
      }
    }
    const applied: string[] = [];
    for (const migration of migrations.filter((one) => one.version > version)) {
      await apply(connection, migration, patienceMs);
      applied.push(migration.name);
    }
    return applied;
  } finally {
    // If the unlock fails, the lock ends with the connection.
    await connection
      .unsafe(
        `select pg_advisory_unlock(${ADVISORY_LOCK}); reset statement_timeout; reset lock_timeout; reset client_connection_check_interval`,
      )
      .then(
        () => connection.release(),
        () => connection.destroy(),
      );
  }
}

/**
 * Rejects PostgreSQL before 15, and an encoding other than UTF-8, in which PostgreSQL rejects or miscounts characters
 * of accepted admissions.
 */
async function requireUsable(connection: Transaction): Promise<void> {
  const [{ encoding, version, isOld }] = await connection<
    [{ encoding: string; version: string; isOld: boolean }]
  >`select current_setting('server_encoding') as encoding, current_setting('server_version') as version,
      current_setting('server_version_num')::integer < 150000 as "isOld"`;
  if (isOld)
    throw new OperatorError(`the server runs PostgreSQL ${version}: use PostgreSQL 15 or later`);
  if (encoding === 'UTF8') return;
  throw new OperatorError(
    `the database has the encoding ${encoding}: create it again (createdb --owner svc_owner --encoding UTF8 --locale C --template template0)`,
  );
}

/** Applies and records the migration in one transaction; repeats the transaction until it gets its locks. */
async function apply(
  connection: Transaction,
  migration: Migration,
  patienceMs: number,
): Promise<void> {
  const deadline = Date.now() + patienceMs;
  for (;;) {
    try {
      await connection.unsafe(`begin; set local lock_timeout = ${LOCK_TIMEOUT_MS}`);
      await connection.unsafe(migration.text);
      await connection`
        insert into public.svc_migration (version, name, digest, breaking)
        values (${migration.version}, ${migration.name}, ${migration.digest}, ${migration.breaking})`;
      await connection.unsafe('commit');
      return;
    } catch (error) {
      await connection.unsafe('rollback');
      const { code } = error as { code?: unknown };
      if (code !== LOCK_NOT_AVAILABLE && code !== DEADLOCK) throw error;
      if (Date.now() > deadline) {
        throw new OperatorError(
          `migration ${migration.name} did not get its locks and was rolled back: end the transaction that holds them (the oldest xact_start in pg_stat_activity), and migrate again`,
          { cause: error },
        );
      }
      await sleep(PAUSE_MS * (0.5 + Math.random()));
    }
  }
}

interface Migration {
  version: number;
  name: string;
  text: string;
  digest: string;
  /** Earlier versions must not use the migrated schema; marked at the top as `-- breaking: why`. */
  breaking: boolean;
}

/** The migrations of a folder, in order: the baseline `0026_baseline/`, then `0027_name.sql` and so on, without a gap. */
async function readMigrations(folder: string): Promise<Migration[]> {
  const migrations = await Promise.all(
    (await migrationNames(folder)).map(async (name) => {
      const text = await readMigration(join(folder, name));
      const digest = createHash('sha256').update(text).digest('hex');
      const version = versionOf(name);
      return { version, name, text, digest, breaking: /^(--.*\n)*-- breaking: \S/.test(text) };
    }),
  );
  const [baseline] = migrations;
  if (baseline === undefined || baseline.name.endsWith('.sql')) {
    throw new SchemaMismatchError(`${folder} lacks the folder of the baseline`);
  }
  migrations.forEach((migration, index) => {
    if (migration.version !== baseline.version + index) {
      throw new SchemaMismatchError(`migration ${migration.name} is out of sequence`);
    }
  });
  return migrations;
}

/** The text of a migration; the baseline consists of several files. */
async function readMigration(path: string): Promise<string> {
  if (path.endsWith('.sql')) return readFile(path, 'utf8');
  const files = (await readdir(path)).filter((name) => name.endsWith('.sql')).sort();
  const texts = await Promise.all(files.map((name) => readFile(join(path, name), 'utf8')));
  return texts.join('');
}

export async function migrationNames(folder: string): Promise<string[]> {
  return (await readdir(folder)).filter((name) => /^\d{4}_\w+(?:\.sql)?$/.test(name)).sort();
}

const versionOf = (name: string): number => Number(name.slice(0, 4));

/** The version of the baseline, and of the last migration. */
export interface KnownVersions {
  first: number;
  last: number;
}

export async function knownVersions(folder: string): Promise<KnownVersions> {
  const versions = (await migrationNames(folder)).map(versionOf);
  return { first: Math.min(...versions), last: Math.max(...versions) };
}

export class SchemaMismatchError extends OperatorError {}

/**
 * Rejects a schema that lacks a migration of this version, is older than the baseline, or has a later
 * migration marked as breaking. Other later migrations only add, so programs can serve while a newer
 * version migrates.
 *
 * @param needed the version that the database must have
 * @returns whether the database has migrations that this version does not know
 */
export async function requireSchema(sql: Db, { first, last }: KnownVersions, needed = last) {
  const [list] = await mapStartupDbErrors(
    () => sql<{ there: boolean }[]>`
      select to_regclass('public.svc_migration') is not null as there`,
  );
  if (list?.there !== true) {
    throw new SchemaMismatchError(
      'the database has no registry yet: prepare it (npm run admin -- init)',
    );
  }
  const [row] = await mapStartupDbErrors(
    () => sql<{ version: number; breaking: string | null }[]>`
      select coalesce(max(version), 0) as version,
        min(name) filter (where version > ${last} and breaking) as breaking
      from public.svc_migration`,
  );
  const version = row?.version ?? 0;
  if (version > 0 && version < first) {
    throw new SchemaMismatchError(
      `the database ends at migration ${version}, but this version starts with the baseline of migration ${first}: migrate the database with a version that has sql/migrations/0026_bounded_intake.sql (its npm run admin -- init), and then with this version`,
    );
  }
  if (version < needed) {
    throw new SchemaMismatchError(
      `the last migration of the database is ${version}, but this version needs ${last}: migrate it with this version (npm run admin -- init), and start the program again`,
    );
  }
  if (typeof row?.breaking === 'string') {
    throw new SchemaMismatchError(
      `the database has the breaking migration ${row.breaking}, which this version does not support: run the version that created it, or a newer one`,
    );
  }
  return { ahead: version > last };
}
