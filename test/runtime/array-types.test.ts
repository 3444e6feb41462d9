import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, type Sql } from '#runtime/postgres/connect';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';

let db: TestDatabase;
let sql: Sql;
beforeAll(async () => {
  db = await freshDatabase();
  sql = connect(db.url, { application: 'test', max: 1 });
});
afterAll(async () => {
  await sql.end();
  await db.drop();
});

const UUID = '019aa2c1-e07b-7c0f-8a3e-5d6b7c8d9e0f';
/** Of which the driver would take a list for a single one, unless it is told. */
const [BOOLEANS, BYTEAS] = [1000, 1001];

describe('array parameters', () => {
  it.each<[string, unknown[]]>([
    ['text[]', ['', 'a', 'a b', '"', '\\', '{,}', "'", 'null', 'NULL', null, '\n', '愛', '\\"{']],
    ['name[]', ['svc_engine', null]],
    ['uuid[]', [UUID, null]],
    ['smallint[]', [-1, 0, 32_767, null]],
    ['integer[]', [-1, 0, 2 ** 31 - 1, null]],
    ['bigint[]', [-1, 0, 2 ** 53 - 1, null]],
    ['text[]', []],
  ])('of %s comes back as it was sent', async (type, values) => {
    const [row] = await sql`select ${values as string[]}::${sql.unsafe(type)} as back,
      cardinality(${values as string[]}::${sql.unsafe(type)}) as n`;
    expect(row).toEqual({ back: values, n: values.length });
  });

  it('round-trips booleans and bytes', async () => {
    const bytes = [Buffer.from([0, 0x5c, 0xff]), Buffer.alloc(0), null];
    const truths = [true, false, null];
    const [row] = await sql`select ${sql.array(truths as boolean[], BOOLEANS)}::boolean[] as truths,
      ${sql.array(bytes as Buffer[], BYTEAS)}::bytea[] as bytes`;
    expect(row).toEqual({ truths, bytes });
  });

  it('throws for a number that exceeds the safe integer range', async () => {
    await expect(sql`select array[9007199254740993]::bigint[]`).rejects.toThrow(RangeError);
  });

  it('rejects undefined elements', async () => {
    const values = ['a', undefined] as string[];
    await expect(sql`select ${values}::text[]`).rejects.toThrow(TypeError);
  });

  it('rejects arrays that are not one-dimensional', async () => {
    await expect(sql`select array[array[1, 2], array[3, 4]]`).rejects.toThrow(RangeError);
    await expect(sql`select '[0:1]={1,2}'::integer[]`).rejects.toThrow(RangeError);
  });
});

it('array types > cover every array column of the registry', async () => {
  const columns = await db.sql<{ type: number; name: string }[]>`
    select distinct a.atttypid::int as type, format_type(a.atttypid, null) as name
    from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid
    where c.relnamespace = 'svc'::regnamespace and c.relkind in ('r', 'p') and t.typcategory = 'A'`;
  expect(columns.length).toBeGreaterThan(0);
  const unknown = columns.filter(({ type }) => sql.options.parsers[type] === undefined);
  expect(unknown).toEqual([]);
});
