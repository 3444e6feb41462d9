import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Pool } from './db.js';
import { firstAsking } from './errors.js';

/** The database was migrated by a newer or another version of this software. */
export class SchemaMismatchError extends Error {
  override readonly name = 'SchemaMismatchError';
  readonly forOperator = true;
}

const ADVISORY_LOCK = 7_301_001;

interface Migration {
  version: number;
  name: string;
  text: string;
  digest: string;
}

/** The numbered SQL files of a folder, in order: `0001_name.sql`, without a gap. */
async function readMigrations(folder: string): Promise<Migration[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort();
  const migrations = await Promise.all(
    names.map(async (name) => {
      const text = await readFile(join(folder, name), 'utf8');
      const digest = createHash('sha256').update(text).digest('hex');
      return { version: Number(name.slice(0, 4)), name, text, digest };
    }),
  );
  migrations.forEach((migration, index) => {
    if (migration.version !== index + 1) {
      throw new SchemaMismatchError(`migration ${migration.name} is out of sequence`);
    }
  });
  return migrations;
}

/**
 * Brings the schema up to the newest migration of `folder` and returns the names it applied.
 * Each migration is one transaction. Several starters at once migrate once: an advisory lock
 * serialises them. A database that is ahead, or whose history differs, is refused.
 */
export async function migrate(sql: Pool, folder: string): Promise<string[]> {
  const migrations = await readMigrations(folder);
  const connection = await sql.reserve();
  try {
    await firstAsking(() => connection`select pg_advisory_lock(${ADVISORY_LOCK})`);
    await connection`
      create table if not exists public.svc_migration (
        version integer primary key, name text not null, digest text not null,
        applied_at timestamptz not null default now())`;
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
      await connection.unsafe('begin');
      try {
        await connection.unsafe(migration.text);
        await connection`
          insert into public.svc_migration (version, name, digest)
          values (${migration.version}, ${migration.name}, ${migration.digest})`;
        await connection.unsafe('commit');
      } catch (error) {
        await connection.unsafe('rollback');
        throw error;
      }
      applied.push(migration.name);
    }
    return applied;
  } finally {
    // A lock that cannot be given back goes with its connection.
    await connection`select pg_advisory_unlock(${ADVISORY_LOCK})`.then(
      () => connection.release(),
      () => connection.discard(),
    );
  }
}
