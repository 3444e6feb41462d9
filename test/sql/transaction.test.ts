import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { connect } from '#runtime/postgres/connect';
import {
  pipeline,
  type Pool,
  inOneRoundTrip,
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

/** One connection, so that a transaction would see state that an earlier one leaves behind. */
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

describe('inOneRoundTrip', () => {
  beforeEach(() => db.sql`insert into public.note values ('a')`);
  /** Runs one statement in a transaction that has a setting. */
  const noted = async <T>(statement: (tx: Transaction) => Statement<T>): Promise<T> => {
    const [, , found] = await inOneRoundTrip(
      sql,
      (tx) =>
        [
          tx`begin read only`,
          tx`select set_config('svc.noted', 'yes', true)`,
          statement(tx),
        ] as const,
    );
    return found;
  };

  it('applies its session setting, and resets the setting afterwards', async () => {
    const read = () =>
      noted(
        (tx) => tx<{ text: string; noted: string }[]>`
          select text, current_setting('svc.noted', true) as noted from public.note`,
      );
    expect([...(await read())]).toEqual([{ text: 'a', noted: 'yes' }]);
    const [after] = await transaction(
      sql,
      (tx) => tx<{ noted: string | null }[]>`
        select current_setting('svc.noted', true) as noted`,
    );
    expect(after?.noted ?? '').toBe('');
  });

  it('cannot write, and throws the first error', async () => {
    const writing = noted((tx) => tx`insert into public.note values ('b')`);
    await expect(writing).rejects.toMatchObject({ cause: { code: '25006' } });
    const wrong = noted((tx) => tx`select 1 / 0`);
    await expect(wrong).rejects.toMatchObject({ code: '22012' });
    await transaction(sql, (tx) => tx`insert into public.note values ('c')`);
    expect(await notes()).toEqual(['a', 'c']);
  });

  it('never reads without its setting, even when a table changes after a statement was prepared', async () => {
    await db.sql`create table public.changing (text varchar(9))`;
    await db.sql`insert into public.changing values ('a')`;
    const read = (text: string) =>
      noted(
        (tx) => tx<{ text: string }[]>`
          select text from public.changing
          where text = ${text} and current_setting('svc.noted', true) = 'yes'`,
      );
    expect(await read('a')).toHaveLength(1);
    await db.sql`alter table public.changing alter column text type text`;
    await expect(read('a')).rejects.toThrow('transaction rolled back');
    expect(await read('a')).toHaveLength(1);
  });
});
