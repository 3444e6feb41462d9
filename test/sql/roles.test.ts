import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import postgres from 'postgres';
import { afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { connect } from '#runtime/postgres/connect';
import { assertDatabase } from '#programs/database';
import { PROGRAM_ROLES } from '#programs/migrate-database';
import { DatabaseUnusableError } from '#sql/db/errors';
import type { Pool } from '#sql/db/transaction';
import { assertRole, frozenRights, PROGRAMS, TooMuchPrivilegeError } from '#sql/db/roles';
import { firstHostDown } from '../fixtures/two-hosts.js';
import { useDatabase } from '../fixtures/use-registry.js';

const db = useDatabase('file');
let relations: Relation[];
beforeAll(async () => {
  relations = await db.sql<Relation[]>`
    select n.nspname || '.' || c.relname as name, c.relkind = 'S' as "isSequence",
      (select array_agg(attname::text order by attnum) from pg_attribute a
        where a.attrelid = c.oid and attnum > 0 and not attisdropped) as columns
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
      and c.relkind = any(case n.nspname when 'svc' then '{S}' else '{r,p,v,m,f,S}' end::"char"[])
    order by 1`;
});

/** One pool per role, because the server's connections are limited. */
const pools = new Map<string, Pool>();
function as(role: string): Pool {
  const pool = pools.get(role) ?? db.as(role);
  pools.set(role, pool);
  return pool;
}

interface Relation {
  name: string;
  isSequence: boolean;
  columns: string[];
}

const FILE_FUNCTIONS = [
  'pg_read_file(text)',
  'pg_read_binary_file(text)',
  'pg_ls_dir(text)',
  'lo_import(text)',
  'lo_export(oid, text)',
];
const DENIED = '42501';
const OF_TABLES = ['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER'];
const OF_SEQUENCES = ['SELECT', 'USAGE', 'UPDATE'];
const BY_COLUMN = ['SELECT', 'INSERT', 'UPDATE', 'REFERENCES'];

async function rightsOn(role: string, { name, isSequence, columns }: Relation): Promise<string> {
  const rights: string[] = [];
  for (const right of isSequence ? OF_SEQUENCES : OF_TABLES) {
    const ask = isSequence ? 'has_sequence_privilege' : 'has_table_privilege';
    const [whole] = await db.sql.unsafe<{ has: boolean }[]>(`select ${ask}($1, $2, $3) as has`, [
      role,
      name,
      right,
    ]);
    if (whole?.has === true) rights.push(right);
    else if (!isSequence && BY_COLUMN.includes(right)) {
      const some = await db.sql<{ one: string }[]>`
        select one from unnest(${columns}::text[]) as one
        where has_column_privilege(${role}, ${name}, one, ${right})`;
      if (some.length > 0) rights.push(`${right}(${some.map(({ one }) => one).join(',')})`);
    }
  }
  return rights.join(' ');
}

/** The error code of a rejected statement, or `done`. The effects of the statement are rolled back. */
async function refusalOf(sql: Pool, statement: string): Promise<string> {
  const undone = new Error('undone');
  try {
    await sql.begin(async (tx) => {
      await tx.unsafe(statement);
      throw undone;
    });
  } catch (error) {
    return error === undone ? 'done' : (error as { code: string }).code;
  }
  return 'done';
}

describe('privileges of the program roles', () => {
  // sql/schema.txt has the privileges on the tables and functions of the schema svc.
  it('match test/fixtures/role-rights.txt for sequences, and for tables outside the schema svc', async () => {
    const found: string[] = [];
    for (const role of [...PROGRAM_ROLES].sort()) {
      for (const relation of relations) {
        const rights = await rightsOn(role, relation);
        if (rights !== '') found.push(`${role} ${relation.name} ${rights}`);
      }
    }
    // A new privilege is a new line in the fixture; review it, then run vitest -u.
    const file = join(packageRoot, 'test', 'fixtures', 'role-rights.txt');
    await expect(`${found.join('\n')}\n`).toMatchFileSnapshot(file);
  });

  it('do not include creating objects in any schema', async () => {
    for (const role of PROGRAM_ROLES) {
      const [can] = await db.sql<{ made: string[] | null }[]>`
        select array_agg(nspname::text) as made from pg_namespace
        where has_schema_privilege(${role}, oid, 'create')`;
      expect(can?.made).toBeNull();
    }
  });
});

/** Statements that no program needs. */
const FORBIDDEN: readonly (readonly [string, string])[] = [
  ...PROGRAM_ROLES.map((role) => [`becoming ${role}`, `set local role ${role}`] as const),
  ['assuming the owner role', 'set local role postgres'],
  ['changing the session user', 'set session authorization postgres'],
  ['reading secrets of roles', 'select rolpassword from pg_authid'],
  ['reading a file of the server', `select pg_read_file('/etc/passwd')`],
  ['reading a file as bytes', `select pg_read_binary_file('/etc/passwd')`],
  ['listing a directory', `select pg_ls_dir('.')`],
  ['reading the metadata of a file', `select pg_stat_file('PG_VERSION')`],
  ['running a program', `copy (select 1) to program 'true'`],
  ['writing a file', `copy (select 1) to '/tmp/svc-never'`],
  ['reading a file as rows', `create temp table t (a text); copy t from '/etc/passwd'`],
  ['reading a file as a large object', `select lo_import('/etc/passwd')`],
  ['writing a large object to a file', `select lo_export(lo_from_bytea(0, 'x'), '/tmp/svc-never')`],
  ['creating a table', 'create table svc.own (a int)'],
  ['creating a table in the schema public', 'create table public.own (a int)'],
  ['creating a table in the schema of the queue', 'create table bullmq.own (a int)'],
  ['creating a schema', 'create schema own'],
  ['creating a function', 'create function svc.own() returns int language sql return 1'],
  [
    'creating a function in the schema public',
    'create function public.own() returns int language sql return 1',
  ],
  ['creating an extension', 'create extension dblink'],
  ['creating a role', 'create role own'],
  ['becoming a superuser', 'alter role current_user superuser'],
  ['granting itself another role', 'grant svc_worker to current_user'],
  [
    'changing a setting of the database',
    `do $$ begin execute format('alter database %I set fsync = off', current_database()); end $$`,
  ],
  ['disabling triggers for the session', 'set local session_replication_role = replica'],
  ['disabling triggers of a table', 'alter table svc.log_entry disable trigger all'],
  ['disabling row-level security', 'alter table svc.intake disable row level security'],
  ['dropping a table', 'drop table svc.verdict'],
  ['changing a function', 'alter function svc.refuse_change() owner to current_user'],
  [
    'creating a trigger',
    'create trigger t before insert on svc.log_entry for each row execute function svc.refuse_change()',
  ],
  [
    'creating an event trigger',
    'create event trigger t on ddl_command_end execute function svc.refuse_change()',
  ],
  [
    'terminating another session',
    `select pg_terminate_backend(pid) from pg_stat_activity where usename = 'postgres'`,
  ],
  ['creating a replication slot', `select pg_create_logical_replication_slot('own', 'pgoutput')`],
  ['loading a library', `load 'dblink'`],
];

it.each([...PROGRAM_ROLES])(
  'database role privileges > deny %s every forbidden statement',
  async (role) => {
    for (const [what, statement] of FORBIDDEN) {
      if (statement === `set local role ${role}`) continue;
      const code = await refusalOf(as(role), statement);
      const unknownLibrary = what === 'loading a library' && code === '58P01';
      expect([what, unknownLibrary ? DENIED : code]).toEqual([what, DENIED]);
    }
  },
);

describe('functions of the schema svc', () => {
  it('are not executable by PUBLIC', async () => {
    const [open] = await db.sql<{ names: string[] | null }[]>`
      select array_agg(p.proname::text) as names
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace and n.nspname = 'svc',
        aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as acl
      where acl.grantee = 0`;
    expect(open?.names).toBeNull();
  });

  it('have a fixed search_path when they are SECURITY DEFINER or in PL/pgSQL', async () => {
    const rows = await db.sql<{ name: string; config: string[] | null }[]>`
      select p.oid::regprocedure::text as name, p.proconfig as config
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace
      join pg_language l on l.oid = p.prolang
      where (p.prosecdef and n.nspname in ('svc', 'public', 'bullmq'))
        or (l.lanname = 'plpgsql' and n.nspname = 'svc')`;
    expect(rows.length).toBeGreaterThan(0);
    for (const { name, config } of rows) {
      expect([name, config?.find((one) => one.startsWith('search_path='))]).toEqual([
        name,
        'search_path=pg_catalog, pg_temp',
      ]);
    }
  });
});

it('functions of the database > do not use types of the temporary schema', async () => {
  const appended = as('svc_admin').begin(async (tx) => {
    await tx.unsafe(`
      create function pg_temp.is_caller() returns boolean language plpgsql as $$ begin
        if current_user <> session_user then raise exception 'a function of the role ran as %', current_user; end if;
        return true; end $$;
      create domain pg_temp.jsonb as pg_catalog.jsonb check (pg_temp.is_caller());
      create domain pg_temp.uuid as pg_catalog.uuid check (pg_temp.is_caller())`);
    // PL/pgSQL keeps the types of the variables from this rejected insert on.
    const insert = tx.savepoint(
      (inner) =>
        inner`insert into svc.log_entry (leaf_index, at, kind, body) values (900, now(), 3, '{}')`,
    );
    await expect(insert).rejects.toThrow('not an entry of kind 3');
    await tx`select svc.append_approver(sha256('x'), 'activate')`;
    throw new Error('undone');
  });
  await expect(appended).rejects.toThrow('undone');
});

it.each(PROGRAMS)(
  "assertRole at the start of a program > accepts only the program's own role for %s",
  async (program) => {
    await assertRole(as(`svc_${program}`), program);
    for (const role of [...PROGRAM_ROLES, 'postgres']) {
      if (role === `svc_${program}` || role === 'svc_board') continue;
      const other = role === 'postgres' ? db.sql : as(role);
      await expect(assertRole(other, program), role).rejects.toThrow(TooMuchPrivilegeError);
    }
  },
);

it('assertDatabase > rejects a connection without its session settings, such as a connection through a transaction pooler', async () => {
  await expect(assertDatabase(as('svc_publisher'), 'publisher')).resolves.toBeUndefined();
  // Simulates a connection through a pooler that drops start-up parameters.
  const pooled = postgres(db.urlFor('svc_publisher'), { max: 1 }) as unknown as Pool;
  await expect(assertDatabase(pooled, 'publisher')).rejects.toThrow(DatabaseUnusableError);
  await expect(assertDatabase(pooled, 'publisher')).rejects.toThrow(
    'a connection pooler is in between',
  );
  await pooled.end();
});

it.each(['synchronous_commit = off', 'session_replication_role = replica', 'row_security = off'])(
  'assertDatabase > rejects %s',
  async (setting) => {
    await db.sql.unsafe(`alter database ${db.name} set ${setting}`);
    const sql = connect(db.urlFor('svc_publisher'), { application: 'test', max: 1 });
    onTestFinished(async () => {
      await sql.end();
      await db.sql.unsafe(`alter database ${db.name} reset ${setting.split(' ')[0]!}`);
    });
    await expect(assertDatabase(sql, 'publisher')).rejects.toThrow(
      `unsafe settings for this role: ${setting}. Reset them`,
    );
  },
);

describe('assertRole rejects a role with a program’s privileges that', () => {
  const name = `probe_${randomBytes(4).toString('hex')}`;
  const drop = () => db.sql.unsafe(`drop owned by ${name} cascade; drop role ${name}`);
  let sql: Pool;
  beforeEach(async () => {
    // A separate role, because the programs' roles belong to the whole cluster.
    await db.sql.unsafe(`
        create role ${name} login password '${name}'; grant usage on schema svc to ${name}`);
    const { verifier } = (await frozenRights()).rights;
    for (const { name: right } of verifier) {
      const [, privilege, table, column = ''] = /^(\w+) (\w+)(\(.*\))?$/.exec(right) ?? [];
      await db.sql.unsafe(`grant ${privilege} ${column} on svc.${table} to ${name}`);
    }
    const url = new URL(db.urlFor('svc_verifier'));
    url.username = name;
    url.password = name;
    sql = connect(url.toString(), { application: 'test', max: 1 });
  });
  afterEach(async () => {
    await sql.end();
    await drop();
  });

  it.each<readonly [what: string, statements: string, reason: RegExp]>([
    ...FILE_FUNCTIONS.map(
      (name) =>
        [
          `can reach files of the server by ${name}`,
          `grant execute on function ${name} to %`,
          /can read files of the server/,
        ] as const,
    ),
    ['is a superuser', 'alter role % superuser', /is a superuser/],
    ['can create roles', 'alter role % createrole', /can create roles/],
    ['bypasses row-level security', 'alter role % bypassrls', /bypasses row-level security/],
    ['can replicate', 'alter role % replication', /can replicate/],
    ['can create databases', 'alter role % createdb', /can create databases/],
    [
      'can disable triggers',
      'grant set on parameter session_replication_role to %',
      /can disable triggers/,
    ],
    [
      'can create schemas',
      `do $$ begin execute format('grant create on database %I to #', current_database()); end $$`,
      /can create schemas/,
    ],
    [
      'can assume another program’s role',
      'grant svc_publisher to % with inherit false',
      /is a member of another role/,
    ],
    ['owns a table', 'create table svc.own (a int); alter table svc.own owner to %', /owns tables/],
    ['can create tables', 'grant create on schema svc to %', /can create objects in the schema/],
    ['can read an extra table', 'grant select on svc.api_key to %', /SELECT api_key/],
    [
      'can change an extra column',
      'grant update (note) on svc.checkpoint to %',
      /UPDATE checkpoint/,
    ],
    ['can create triggers', 'grant trigger on svc.verdict to %', /TRIGGER verdict/],
    ['can truncate a table', 'grant truncate on svc.log_entry to %', /TRUNCATE log_entry/],
    [
      'can read a forbidden table through a view',
      'create view svc.keys as select * from svc.api_key; grant select on svc.keys to %',
      /SELECT keys/,
    ],
  ])('%s', async (_, statements, reason) => {
    await assertRole(sql, 'verifier');
    await db.sql.unsafe(statements.replaceAll(/%(?!I)|#/g, name));
    await expect(assertRole(sql, 'verifier')).rejects.toThrow(reason);
    await db.sql.unsafe('drop table if exists svc.own; drop view if exists svc.keys');
  });
});

it('assertDatabase > tries each host of the URL, and the connections after it use the host that answered', async () => {
  const url = firstHostDown(db.urlFor('svc_publisher'));
  const sql = connect(url, { application: 'test', max: 4 });
  onTestFinished(() => sql.end());
  await assertDatabase(sql, 'publisher');
  const answers = await Promise.all(Array.from({ length: 4 }, () => sql`select pg_sleep(0.05)`));
  expect(answers).toHaveLength(4);
});
