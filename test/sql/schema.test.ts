import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { MIGRATIONS } from '#programs/database';
import { packageRoot } from '#runtime/process/files';
import { connect } from '#runtime/postgres/connect';
import { migrate, migrationNames, REPLACED, requireSchema } from '#sql/schema/migrate';
import { useDatabase, useMigrations } from '../fixtures/use-registry.js';
import { describeSchema } from './describe-schema.js';

const db = useDatabase('test');
const copy = useMigrations('test');
const applied = async () =>
  (await db.sql<{ name: string }[]>`select name from public.svc_migration order by version`).map(
    (row) => row.name,
  );

it('database schema > equals sql/schema.txt', async () => {
  const file = join(packageRoot, 'sql', 'schema.txt');
  const found = await describeSchema(db.sql);
  if (process.env['UPDATE_SCHEMA'] === '1') await writeFile(file, found);
  expect(found).toBe(await readFile(file, 'utf8'));
});

it('migrations after the baseline > grant rights only on their own tables and views, unless they are breaking', async () => {
  // An old program refuses to start with a new right on a table that it knows.
  for (const name of (await migrationNames(MIGRATIONS)).slice(1)) {
    const text = await readFile(join(MIGRATIONS, name), 'utf8');
    if (/^(--.*\n)*-- breaking: \S/.test(text)) continue;
    const statements = text.replace(/--.*/g, '');
    const own = [...statements.matchAll(/create (?:table|view) (svc\.\w+)/g)].map(([, of]) => of);
    const grants = statements.matchAll(/\bgrant\b[^;]*?\bon\s(?!function\b)([^;]*?)\sto\s/g);
    const granted = [...grants].flatMap(([, on = '']) => on.split(',').map((of) => of.trim()));
    expect(own, name).toEqual(expect.arrayContaining(granted));
  }
});

it('migrate > rejects an applied migration that has a different text', async () => {
  await db.sql`update public.svc_migration set digest = 'other'`;
  await expect(migrate(db.sql, MIGRATIONS)).rejects.toThrow(/different text/);
});

/** Replaces the record of the baseline by those of the migrations that it replaced, up to this one. */
const recordReplaced = (last: number) =>
  db.sql.unsafe(`
    delete from public.svc_migration where version <= ${copy.known.first} or ${last} < ${copy.known.first};
    insert into public.svc_migration (version, name, digest)
      select n, n || '_old.sql', case n when ${copy.known.first} then '${REPLACED}' else 'old' end
      from generate_series(1, ${last}) n`);

it('migrate > records the baseline once', async () => {
  expect(await applied()).toEqual(await migrationNames(MIGRATIONS));
});

it('migrate > accepts a database with the migrations that the baseline replaced, and continues there', async () => {
  await recordReplaced(copy.known.first);
  expect(await requireSchema(db.as('svc_engine'), copy.known)).toEqual({ ahead: false });
  expect(await migrate(db.sql, MIGRATIONS)).toEqual([]);
  const next = await copy.add(1, 'create table svc.more (a int);');
  expect(await migrate(db.sql, copy.folder)).toEqual([next]);
});

it('migrate > rejects a database that lacks a migration of those that the baseline replaced', async () => {
  await recordReplaced(copy.known.first - 1);
  const expected = /^the database ends at migration \d+,.*0026_bounded_intake\.sql/;
  await expect(migrate(db.sql, MIGRATIONS)).rejects.toThrow(expected);
  await expect(requireSchema(db.as('svc_engine'), copy.known)).rejects.toThrow(expected);
});

it('migrate > rejects a folder that lacks the baseline', async () => {
  const next = await copy.add(1, 'create table svc.more (a int);');
  const [baseline = ''] = await migrationNames(copy.folder);
  await rm(join(copy.folder, baseline), { recursive: true });
  await expect(migrate(db.sql, copy.folder)).rejects.toThrow(/lacks the folder of the baseline$/);
  expect(await applied()).not.toContain(next);
});

it('migrate > rolls back a failed migration, and applies the corrected text', async () => {
  const before = await describeSchema(db.sql);
  const next = await copy.add(1, 'create table svc.more (a int); select 1 / 0;');
  await expect(migrate(db.sql, copy.folder)).rejects.toThrow(/division by zero/);
  expect(await describeSchema(db.sql)).toBe(before);
  expect(await applied()).not.toContain(next);
  await copy.add(1, 'create table svc.more (a int);');
  expect(await migrate(db.sql, copy.folder)).toEqual([next]);
});

it('migrate > applies each migration once when started concurrently, and leaves no lock', async () => {
  const next = await copy.add(1, 'create table svc.more (a int); select pg_sleep(0.2);');
  const pools = [1, 2, 3].map(() => connect(db.url, { application: 'test', max: 1 }));
  const made = await Promise.all(pools.map((pool) => migrate(pool, copy.folder)));
  expect(made.flat()).toEqual([next]);
  expect((await applied()).filter((name) => name === next)).toHaveLength(1);
  // This query runs before the connections close, because closing would release the lock.
  const locks = await db.sql`
    select from pg_locks where locktype = 'advisory'
      and database = (select oid from pg_database where datname = current_database())`;
  expect(locks).toHaveLength(0);
  await Promise.all(pools.map((pool) => pool.end()));
});

it('migrate > rejects a gap in the migration numbers', async () => {
  const before = await applied();
  await copy.add(2, 'create table svc.more (a int);');
  await expect(migrate(db.sql, copy.folder)).rejects.toThrow(/out of sequence/);
  expect(await applied()).toEqual(before);
});
