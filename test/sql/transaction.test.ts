import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { DatabaseLease } from '#publisher/registry/lease';
import { connect } from '#runtime/postgres/connect';
import { DatabaseUnavailableError, isConnectionLost, isUnavailable } from '#sql/db/errors';
import {
  pipeline,
  type Pool,
  readAsTenants,
  requirePrimary,
  type Statement,
  type Transaction,
  transaction,
} from '#sql/db/transaction';
import { useDatabase } from '../fixtures/use-registry.js';

const db = useDatabase('file');
beforeAll(async () => {
  await db.sql`create table public.note (text text primary key)`;
});

const notes = async () =>
  (await db.sql<{ text: string }[]>`select text from public.note order by text`).map(
    (row) => row.text,
  );

/** One connection, so that a transaction would see state that an earlier transaction leaves behind. */
let sql: Pool;
beforeEach(async () => {
  await db.sql`delete from public.note`;
  sql = connect(db.url, { application: 'test', max: 1 });
});
afterEach(() => sql.end());

describe('transaction', () => {
  it('pipelines statements, and rolls back after all of them have ended', async () => {
    const work = transaction(sql, (tx) =>
      pipeline(
        tx`select`.then(() => tx`select 1`),
        tx`insert into public.note values ('a')`,
        tx`insert into public.note values ('a')`,
        tx`select 1`,
      ),
    );
    await expect(work).rejects.toMatchObject({ code: '23505' });
    expect(await notes()).toEqual([]);
    const both = await transaction(sql, (tx) =>
      pipeline(tx<{ n: number }[]>`select 1 as n`, Promise.resolve('b')),
    );
    expect(both[0][0]?.n).toBe(1);
    expect(both[1]).toBe('b');
  });

  it('is READ COMMITTED, whatever the default of the database is', async () => {
    const database = new URL(db.url).pathname.slice(1);
    const set = (value: string) =>
      db.sql.unsafe(`alter database ${database} set default_transaction_isolation ${value}`);
    await set(`= 'repeatable read'`);
    try {
      const [row] = await transaction(sql, (tx) => tx`show transaction_isolation`);
      expect(row).toEqual({ transaction_isolation: 'read committed' });
    } finally {
      await set('to default');
    }
  });

  it('waits for statements in flight before it rolls back', async () => {
    const work = transaction(sql, (tx) =>
      pipeline(
        Promise.reject(new Error('no')),
        sleep(50).then(() => tx`insert into public.note values ('late')`),
      ),
    );
    await expect(work).rejects.toThrow('no');
    await sleep(100);
    expect(await notes()).toEqual([]);
  });

  it('throws and does not commit when its callback ignores a failed statement', async () => {
    const work = transaction(sql, async (tx) => {
      await tx`insert into public.note values ('a')`;
      await tx`insert into public.note values ('a')`.catch(() => undefined);
    });
    await expect(work).rejects.toThrow('transaction rolled back');
    expect(await notes()).toEqual([]);
    await transaction(sql, (tx) => tx`insert into public.note values ('b')`);
    expect(await notes()).toEqual(['b']);
  });
});

describe('readAsTenants', () => {
  beforeEach(() => db.sql`insert into public.note values ('a')`);
  const scoped = <T>(statement: (tx: Transaction) => Statement<T>): Promise<T> =>
    readAsTenants(sql, [7], statement);

  it('shows the tenants to the statement, and to no later transaction', async () => {
    const read = () =>
      scoped(
        (tx) => tx<{ text: string; tenants: string }[]>`
          select text, current_setting('svc.tenants', true) as tenants from public.note`,
      );
    expect([...(await read())]).toEqual([{ text: 'a', tenants: '{7}' }]);
    const [after] = await transaction(
      sql,
      (tx) => tx<{ tenants: string | null }[]>`
        select current_setting('svc.tenants', true) as tenants`,
    );
    expect(after?.tenants ?? '').toBe('');
  });

  it('cannot write, and throws the first error', async () => {
    const writing = scoped((tx) => tx`insert into public.note values ('b')`);
    await expect(writing).rejects.toMatchObject({ cause: { code: '25006' } });
    const wrong = scoped((tx) => tx`select 1 / 0`);
    await expect(wrong).rejects.toMatchObject({ code: '22012' });
    await transaction(sql, (tx) => tx`insert into public.note values ('c')`);
    expect(await notes()).toEqual(['a', 'c']);
  });

  it('never reads without its setting, even when a table changes after a statement was prepared', async () => {
    await db.sql`create table public.changing (text varchar(9))`;
    await db.sql`insert into public.changing values ('a')`;
    const read = (text: string) =>
      scoped(
        (tx) => tx<{ text: string }[]>`
          select text from public.changing
          where text = ${text} and current_setting('svc.tenants', true) = '{7}'`,
      );
    expect(await read('a')).toHaveLength(1);
    await db.sql`alter table public.changing alter column text type text`;
    await expect(read('a')).rejects.toThrow('transaction rolled back');
    expect(await read('a')).toHaveLength(1);
  });
});

it('connection pool on a server without free connections > rejects queries with an error for which isUnavailable returns true', async () => {
  const role = `crowded_${db.name}`;
  await db.sql.unsafe(`create role ${role} login password 'x' connection limit 0`);
  const url = new URL(db.url);
  url.username = role;
  url.password = 'x';
  const sql = connect(url.toString(), { application: 'test', max: 1 });
  try {
    const error: unknown = await sql`select`.catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: '53300' });
    expect(isUnavailable(error)).toBe(true);
    expect(isConnectionLost(error)).toBe(true);
  } finally {
    await sql.end();
    await db.sql.unsafe(`drop role ${role}`);
  }
});

/** Ends the connection of a transaction, as a server restart or an operator who terminates sessions would. */
async function endItself(tx: Transaction): Promise<void> {
  const [own] = await tx<{ pid: number }[]>`select pg_backend_pid() as pid`;
  await db.sql`select pg_terminate_backend(${own!.pid}::int)`;
}

// No lost connection may raise an uncaught exception: it would fail the whole test run.
describe.each([1, 2])('connection pool of %i whose connections the server ends', (max) => {
  let sql: Pool;
  beforeEach(() => {
    sql = connect(db.url, { application: 'ended', max });
  });
  afterEach(() => sql.end({ timeout: 1 }));
  const serves = async () => {
    await Promise.all(
      Array.from({ length: max + 1 }, (_, i) =>
        transaction(sql, (tx) => tx`insert into public.note values (${String(i)})`),
      ),
    );
    expect(await notes()).toEqual(Array.from({ length: max + 1 }, (_, i) => String(i)));
  };

  it('never runs the second statement of a transaction outside the transaction', async () => {
    const lost = transaction(sql, async (tx) => {
      await tx`insert into public.note values ('lost')`;
      await endItself(tx);
      await sleep(50); // the driver sees the close
      await Promise.all(Array.from({ length: max }, () => sql`select 1`)); // reconnect the pool
      await tx`insert into public.note values ('alone')`;
    });
    await expect(lost).rejects.toThrow(DatabaseUnavailableError);
    await serves();
  });

  it('never runs the pipelined statements of a transaction outside the transaction', async () => {
    const lost = transaction(sql, async (tx) => {
      const [own] = await tx<{ pid: number }[]>`select pg_backend_pid() as pid`;
      const names = ['a', 'b', 'c', 'd'];
      const all = Promise.allSettled([
        tx`select pg_sleep(5), ${own!.pid}::int`,
        ...names.map((name) => tx`insert into public.note values (${name})`),
      ]);
      await sleep(50);
      await db.sql`select pg_terminate_backend(${own!.pid}::int)`;
      const outcomes = (await all).map((one) => one.status);
      expect(outcomes).toEqual(outcomes.map(() => 'rejected'));
      await tx`insert into public.note values ('e')`;
    });
    await expect(lost).rejects.toThrow(DatabaseUnavailableError);
    await sleep(150); // longer than the pause before the driver would reconnect
    const left = await db.sql`select from pg_stat_activity where application_name = 'ended'`;
    expect(left).toHaveLength(0);
    await serves();
  });
});

it('connection pool > waits on end() for the open transaction, and rejects later transactions', async () => {
  let ended: Promise<void> | undefined;
  const under = transaction(sql, async (tx) => {
    await tx`insert into public.note values ('a')`;
    ended = sql.end();
    await sleep(20);
    await tx`insert into public.note values ('b')`;
  });
  await under;
  await ended;
  expect(await notes()).toEqual(['a', 'b']);
  await expect(transaction(sql, (tx) => tx`select 1`)).rejects.toThrow(DatabaseUnavailableError);
});

const failWith = (code: string, pool: Pool = db.sql) =>
  transaction(pool, (tx) =>
    tx.unsafe(`do $$ begin raise exception using errcode = '${code}'; end $$`),
  );

it('connection pool > recovers after the reset of default_transaction_read_only', async () => {
  const alter = (change: string) =>
    db.sql.unsafe(`alter role svc_engine in database ${db.name} ${change}`);
  const engine: Pool = connect(db.urlFor('svc_engine'), { application: 'test', max: 1 });
  const lease = new DatabaseLease(engine);
  const write = () => transaction(engine, (tx) => tx`drop table if exists pg_temp.absent`);
  const writes = [() => requirePrimary(engine), () => lease.take(), write];
  try {
    await alter('set default_transaction_read_only = on');
    for (const attempt of writes) {
      const error: unknown = await attempt().catch((reason: unknown) => reason);
      expect(isUnavailable(error)).toBe(true);
    }
    await alter('reset default_transaction_read_only');
    await requirePrimary(engine);
    expect(await lease.take()).toBe(true);
    await write();
  } finally {
    await engine.end();
  }
});

it.each(['25P03', '25P04'])('transaction > discards the connection after %s', async (code) => {
  const backend = () => transaction(sql, (tx) => tx`select pg_backend_pid()`);
  const before = await backend();
  await failWith(code, sql).catch(() => undefined);
  expect(await backend()).not.toEqual(before);
});

it('isUnavailable > returns true for error codes of an outage, in and outside transactions, and for no other code', async () => {
  for (const code of [
    '08006',
    '28P01',
    '28000',
    '3D000',
    '53300',
    '53100',
    '57P01',
    '57P03',
    '57014',
    '25P03',
    '25P04',
    '25006',
  ]) {
    const error: unknown = await failWith(code).catch((reason: unknown) => reason);
    expect(error, code).toBeInstanceOf(DatabaseUnavailableError);
    expect((error as Error).cause).toMatchObject({ code });
    expect(isUnavailable((error as Error).cause)).toBe(true);
  }
  // The certificate is not for servers, or its issuer is not a CA.
  for (const code of ['INVALID_PURPOSE', 'INVALID_CA']) {
    expect(isUnavailable(Object.assign(new Error('no TLS'), { code })), code).toBe(true);
  }
  for (const code of ['23505', '42501', '40001', '22012']) {
    const error: unknown = await failWith(code).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code });
    expect(isUnavailable(error), code).toBe(false);
  }
});
