import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Pool } from '#sql/db/transaction';
import { LOCK_TIMEOUT_MS, migrate } from '#sql/schema/migrate';
import { useDatabase, useMigrations } from '../fixtures/use-registry.js';

/** Migrations that create indexes concurrently and therefore run outside a transaction. */

const MARK = '-- Found by it.\n-- outside a transaction: the table is large\n';

const db = useDatabase('file');
const copy = useMigrations('file');
let count: number;
let index: string;
beforeAll(async () => {
  await add('create table svc.later (a integer, b text default repeat(chr(65), 500));');
  await migrate(db.sql, copy.folder);
});
beforeEach(async () => {
  await db.sql`truncate svc.later`;
  await db.sql`insert into svc.later select generate_series(1, 5000)`;
  index = `later_${String((await readdir(copy.folder)).length)}`;
});

async function add(text: string): Promise<string> {
  count = (await readdir(copy.folder)).length + 1;
  return copy.add(count - copy.known, text);
}

const built = async (): Promise<unknown> =>
  (
    await db.sql`
      select i.indisvalid as valid, pg_get_indexdef(i.indexrelid) as definition,
        (select max(version) from public.svc_migration) = ${count} as recorded
      from pg_index i where indexrelid = to_regclass(${`svc.${index}`})`
  )[0];
const asTold = (what = 'a', unique = '') => ({
  valid: true,
  definition: `CREATE ${unique}INDEX ${index} ON svc.later USING btree (${what})`,
  recorded: true,
});

/** Opens a transaction that has written a row; the returned function commits it. */
async function openTransaction(): Promise<() => Promise<void>> {
  const connection = await db.sql.reserve();
  await connection.unsafe('begin; insert into svc.later values (0)');
  return async () => {
    await connection.unsafe('commit');
    connection.release();
  };
}

async function waiting(sql: Pool): Promise<void> {
  const blocked = () => sql`
    select from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock' and query like '%concurrently%'`;
  while ((await blocked()).length === 0) await sleep(5);
}

describe('runIndexStatement', () => {
  it('builds an index while rows are written, and waits for older transactions without blocking others', async () => {
    const name = await add(`${MARK}create index concurrently ${index} on svc.later (a);`);
    let written = 0;
    let isOver = false;
    const writing = (async () => {
      while (!isOver) {
        await db.sql`insert into svc.later values (${10_000 + written})`;
        written += 1;
      }
    })();
    const end = await openTransaction();
    const migrating = migrate(db.sql, copy.folder);
    await waiting(db.sql);
    await sleep(LOCK_TIMEOUT_MS + 200);
    const before = written;
    await expect.poll(() => written).toBeGreaterThan(before + 5);
    await waiting(db.sql);
    await end();
    expect(await migrating).toEqual([name]);
    isOver = true;
    await writing;
    expect(await built()).toEqual(asTold());
  });

  it('does not record a failed build, and a second run repeats the build', async () => {
    await db.sql`insert into svc.later values (7)`;
    await add(`${MARK}create unique index concurrently ${index} on svc.later (a);`);
    await expect(migrate(db.sql, copy.folder)).rejects.toMatchObject({ code: '23505' });
    expect(await built()).toMatchObject({ valid: false, recorded: false });
    await db.sql`delete from svc.later where a = 7`;
    await migrate(db.sql, copy.folder);
    expect(await built()).toEqual(asTold('a', 'UNIQUE '));
  });

  it('fails with the next step in its message when an older transaction does not end', async () => {
    await add(`${MARK}create index concurrently ${index} on svc.later (a);`);
    const end = await openTransaction();
    const blocked = migrate(db.sql, copy.folder, 300);
    await expect(blocked).rejects.toThrow(/pg_stat_activity.*invalid/);
    await end();
    expect(await built()).toMatchObject({ valid: false, recorded: false });
    await migrate(db.sql, copy.folder);
    expect(await built()).toEqual(asTold());
  });

  it.each([
    ['several statements', `create index concurrently x on svc.later (a); select 1;`],
    ['another statement', 'update svc.later set a = 1;'],
    ['"if not exists"', 'create index concurrently if not exists x on svc.later (a);'],
    ['an index without "concurrently"', 'create index x on svc.later (a);'],
    ['an index in another schema', 'create index concurrently x on public.svc_migration (name);'],
    ['a drop without "if exists"', 'drop index concurrently svc.x;'],
  ])('rejects %s', async (_what, text) => {
    const name = await add(`${MARK}${text}`);
    await expect(migrate(db.sql, copy.folder)).rejects.toThrow(/runs outside a transaction/);
    await rm(join(copy.folder, name));
  });
});
