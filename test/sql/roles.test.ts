import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { nativeSha256 } from '#runtime/crypto/node';
import { connect } from '#runtime/postgres/connect';
import { putFixture } from '#sql/tenants/administration';
import type { Pool } from '#sql/db/transaction';
import { appendRevocation } from '#sql/lifecycle/entries';
import {
  assertRole,
  effectivePrivileges,
  GRANTS,
  TooMuchPrivilegeError,
  type Program,
} from '#sql/db/roles';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { openRegistry } from '../fixtures/registry.js';

const programs = Object.keys(GRANTS) as Program[];
const FILE_FUNCTIONS = [
  'pg_read_file(text)',
  'pg_read_binary_file(text)',
  'pg_ls_dir(text)',
  'lo_import(text)',
  'lo_export(oid, text)',
];
const LOG_TABLES = ['log_entry', 'proof', 'checkpoint', 'verdict', 'tile', 'log_head'];

describe('database roles', () => {
  let db: TestDatabase;
  beforeAll(async () => {
    db = await freshDatabase();
  });
  afterAll(() => db.drop());

  it.each(programs)('give %s exactly the privileges of GRANTS', async (program) => {
    const expected = Object.entries(GRANTS[program]).flatMap(([privilege, tables]) =>
      tables.map((table) => `${privilege} ${table}`),
    );
    expect([...(await effectivePrivileges(db.as(`svc_${program}`)))].sort()).toEqual(
      expected.sort(),
    );
  });

  it.each(programs)('let %s start only with its own role', async (program) => {
    await assertRole(db.as(`svc_${program}`), program);
    await expect(assertRole(db.sql, program)).rejects.toThrow(TooMuchPrivilegeError);
    for (const other of programs.filter((one) => one !== program && one !== 'admin')) {
      await expect(assertRole(db.as('svc_admin'), other)).rejects.toThrow(TooMuchPrivilegeError);
    }
  });

  describe('assertRole rejects a role with a program’s privileges that', () => {
    const name = `probe_${randomBytes(4).toString('hex')}`;
    const drop = () => db.sql.unsafe(`drop owned by ${name} cascade; drop role ${name}`);
    let sql: Pool;
    beforeEach(async () => {
      // A separate role, because the programs' roles belong to the whole cluster.
      await db.sql.unsafe(`
        create role ${name} login password '${name}'; grant usage on schema svc to ${name}`);
      for (const [privilege, tables] of Object.entries(GRANTS.verifier)) {
        for (const table of tables) {
          const [, relation = '', columns = ''] = /^(\w+)(\(.*\))?$/.exec(table) ?? [];
          await db.sql.unsafe(`grant ${privilege} ${columns} on svc.${relation} to ${name}`);
        }
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
      [
        'owns a table',
        'create table svc.own (a int); alter table svc.own owner to %',
        /owns tables/,
      ],
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

  it('reject a role with an extra privilege', async () => {
    await db.sql`grant delete on svc.tile to svc_publisher`;
    const sql = db.as('svc_publisher');
    await expect(assertRole(sql, 'publisher')).rejects.toThrow(/DELETE tile/);
    await db.sql`revoke delete on svc.tile from svc_publisher`;
    await assertRole(sql, 'publisher');
  });

  it.each(programs)('%s cannot UPDATE, DELETE or TRUNCATE the log', async (program) => {
    const sql = db.as(`svc_${program}`);
    for (const table of LOG_TABLES) {
      await expect(sql`delete from svc.${sql(table)}`).rejects.toThrow(/permission denied/);
      await expect(sql`truncate svc.${sql(table)}`).rejects.toThrow(/permission denied/);
    }
    for (const [table, column] of [
      ['log_entry', 'leaf_index'],
      ['proof', 'aep'],
      ['checkpoint', 'note'],
      ['verdict', 'outcome'],
    ] as const) {
      // The erase role may null payload with an erasure record (erasure.test.ts).
      if (program === 'erase' && table === 'proof') continue;
      await expect(
        sql`update svc.${sql(table)} set ${sql(column)} = ${sql(column)}`,
      ).rejects.toThrow(/permission denied/);
    }
  });

  it('let only the verifier write verdicts, and the publisher read no payload', async () => {
    for (const program of programs.filter((one) => one !== 'verifier')) {
      const sql = db.as(`svc_${program}`);
      await expect(sql`
        insert into svc.verdict (frontier, first_index, last_index, tree_size, root, outcome, checks)
        values (false, 0, 0, 1, ${Buffer.alloc(32)}, 'pass', '[]')`).rejects.toThrow(
        /permission denied/,
      );
    }
    await expect(db.as('svc_publisher')`select aep from svc.proof`).rejects.toThrow(
      /permission denied/,
    );
    await expect(db.as('svc_publisher')`select request from svc.intake`).rejects.toThrow(
      /permission denied/,
    );
  });
});

describe('append-only tables', () => {
  let db: TestDatabase;
  beforeAll(async () => {
    db = await freshDatabase();
    const registry = await openRegistry(db);
    const content = Buffer.from('{}');
    const fixture = { fixtureRef: 'f', fixtureHash: nativeSha256(content), content };
    await putFixture(registry.admin, fixture);
    const [id = ''] = await registry.admitAll([registry.item()]);
    await appendRevocation(registry.admin, nativeSha256, {
      proofId: id,
      artifactKind: 'proof',
      reason: 'wrong',
      actor: 'auditor',
      salt: '5'.repeat(64),
    });
    await registry.verifyAll();
    await db.sql`insert into svc.checkpoint (tree_size, root, note) values (1, ${Buffer.alloc(32)}, '')`;
    await db.sql`insert into svc.tile values (7, 0, ${Buffer.alloc(64, 1)})`;
  });
  afterAll(() => db.drop());

  // The triggers also apply to the owner. A superuser can disable them, and the verifier then
  // finds the change.
  it.each([
    ['log_entry', 'at = now()'],
    ['proof', 'aep = null'],
    ['checkpoint', `note = 'x'`],
    ['verdict', `outcome = 'pass'`],
    ['policy_set', `files = '{}'`],
    ['policy_activation', 'active_from = now()'],
    ['policy_input', `input = ''`],
    ['fixture', `content = ''`],
  ])('%s lets its owner change and delete no row', async (table, change) => {
    await expect(db.sql.unsafe(`update svc.${table} set ${change}`)).rejects.toThrow(/append-only/);
    await expect(db.sql.unsafe(`delete from svc.${table}`)).rejects.toThrow(/append-only/);
  });

  it.each(LOG_TABLES)('reject TRUNCATE of %s, also by its owner', async (table) => {
    const emptied = db.sql.unsafe(`truncate svc.${table} cascade`);
    await expect(emptied).rejects.toThrow(`svc.${table} is append-only`);
  });

  it('allow only to extend a tile', async () => {
    const set = (hashes: Buffer) => db.sql`update svc.tile set hashes = ${hashes} where level = 7`;
    const longer = Buffer.concat([Buffer.alloc(64, 1), Buffer.alloc(32, 2)]);
    await expect(set(Buffer.alloc(32, 1))).rejects.toThrow(/extended/);
    await expect(set(Buffer.alloc(64, 1))).rejects.toThrow(/extended/);
    await expect(set(Buffer.alloc(64, 2))).rejects.toThrow(/extended/);
    await expect(set(Buffer.alloc(96, 2))).rejects.toThrow(/extended/);
    for (const elsewhere of ['level = 6', 'tile_index = 1']) {
      const moved = db.sql.unsafe(`update svc.tile set ${elsewhere}, hashes = $1 where level = 7`, [
        longer,
      ] as never);
      await expect(moved).rejects.toThrow(/extended/);
    }
    await set(longer);
    await expect(db.sql`delete from svc.tile`).rejects.toThrow(/append-only/);
  });

  it('reject leaves beyond the head, and a head beyond the leaves', async () => {
    const behind = db.sql`insert into svc.log_entry (leaf_index, kind, at, body)
      values (1, 3, now(), '\\x01')`;
    await expect(behind).rejects.toThrow(/behind the head/);
    await expect(db.sql`update svc.log_head set tree_size = 900`).rejects.toThrow(/no 900 leaves/);
  });

  it('let workers append only proofs, and admin only other kinds', async () => {
    const status = db.as('svc_worker')`insert into svc.log_entry (leaf_index, kind, at, body)
      values (2, 3, now(), '\\x01')`;
    await expect(status).rejects.toThrow(/may not append entries of kind 3/);
    const proof = db.as('svc_admin')`
      insert into svc.log_entry (leaf_index, kind, proof_id, at, aep_hash, proof_record_hash)
      values (2, 1, gen_random_uuid(), now(), ${Buffer.alloc(32)}, ${Buffer.alloc(32)})`;
    await expect(proof).rejects.toThrow(/may not append entries of kind 1/);
  });

  it('require an intake row for pending and proved rows, and a tenant for each intake', async () => {
    const stranger = '0190aaaa-0000-7000-8000-000000000000';
    const points = (statement: string) =>
      expect(db.sql.unsafe(statement), statement).rejects.toMatchObject({ code: '23503' });
    await points(`insert into svc.proof (proof_id, leaf_index, effect, environment, key_id, tenant_no, lane)
      select id, 900, 'ADMIT', 'sandbox', 'k', 1, 1
      from (select proof_id as id from svc.intake union select '${stranger}') as ids
      where id not in (select proof_id from svc.proof)`);
    await points(`insert into svc.intake_pending values ('${stranger}', now())`);
    const copy = (tenant: string, digest: string) => `
      insert into svc.intake (proof_id, tenant_no, lane, environment, request, request_hash,
        accepted_at, salt, policy_digest, validity)
      select '${stranger}', ${tenant}, lane, environment, request, sha256('other'), accepted_at, salt,
        ${digest}, validity from svc.intake limit 1`;
    await points(copy('tenant_no + 99', 'policy_digest'));
    await points(copy('tenant_no', `sha256('x')`));
    for (const table of ['intake', 'tenant']) {
      await expect(db.sql.unsafe(`delete from svc.${table}`)).rejects.toThrow(/append-only/);
      const emptied = db.sql.unsafe(`truncate svc.${table} cascade`);
      await expect(emptied).rejects.toThrow(/append-only/);
    }
    for (const column of ['proof_id', 'tenant_no', 'policy_digest']) {
      const changed = db.sql.unsafe(`update svc.intake set ${column} = ${column}`);
      await expect(changed).rejects.toThrow(/append-only/);
    }
    await expect(db.sql`update svc.tenant set tenant_no = default`).rejects.toThrow(/append-only/);
  });

  it('check every leaf of a statement', async () => {
    const [head] = await db.sql<{ size: number }[]>`select tree_size as size from svc.log_head`;
    const size = Number(head?.size);
    const both = db.sql`insert into svc.log_entry (leaf_index, kind, at, body)
      select n, 3, now(), '\\x01' from unnest(${[size + 5, size - 1, size + 6]}::bigint[]) as n`;
    await expect(both).rejects.toThrow(`leaf ${size - 1} is behind the head`);
  });

  it('reject a proof in a gap below the head', async () => {
    const [lost] = await db.sql<{ leaf_index: string }[]>`
      select leaf_index from svc.log_entry where kind = 1 order by leaf_index limit 1`;
    const leaf = Number(lost?.leaf_index);
    const filled = db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`; // no trigger refuses the loss
      const [entry] = await tx<{ proof_id: string }[]>`
        delete from svc.log_entry where leaf_index = ${leaf} returning proof_id::text`;
      await tx`set local session_replication_role = origin`;
      await tx`set local role svc_worker`;
      await tx`
        insert into svc.log_entry (leaf_index, kind, proof_id, at, aep_hash, proof_record_hash)
        values (${leaf}, 1, ${entry?.proof_id ?? ''}::uuid, now(), ${Buffer.alloc(32)}, ${Buffer.alloc(32)})`;
    });
    await expect(filled).rejects.toThrow(`leaf ${leaf} is behind the head`);
  });

  it('reject a log head that shrinks, or stays while leaves are added', async () => {
    for (const less of ['tree_size - 1', 'tree_size']) {
      const set = db.sql.unsafe(`update svc.log_head set tree_size = ${less}`);
      await expect(set).rejects.toThrow(/only grow/);
    }
    await expect(db.sql`delete from svc.log_head`).rejects.toThrow(/append-only/);
    await expect(db.sql`insert into svc.log_head values (false, 0)`).rejects.toThrow(/check/);
    await expect(db.sql`insert into svc.log_head values (true, 0)`).rejects.toThrow(/unique/);
  });

  it('reject rows without the form that verifier and publisher rely on', async () => {
    const refused = (statement: string) =>
      expect(db.sql.unsafe(statement), statement).rejects.toThrow(/check constraint/);
    const entry = (values: string) =>
      refused(`insert into svc.log_entry
        (leaf_index, kind, proof_id, at, aep_hash, proof_record_hash, body) values (${values})`);
    const [id, hash] = ['gen_random_uuid()', `sha256('x')`];
    await entry(`900, 1, null, now(), ${hash}, ${hash}, null`);
    await entry(`900, 1, ${id}, now(), '\\x00', ${hash}, null`);
    await entry(`900, 1, ${id}, now(), ${hash}, '\\x00', null`);
    await entry(`900, 1, ${id}, now(), ${hash}, ${hash}, 'x'`);
    await entry(`900, 2, null, now(), null, null, 'x'`);
    await entry(`900, 2, ${id}, now(), null, null, null`);
    await entry(`900, 3, null, now(), null, null, null`);
    await entry(`900, 4, null, now(), null, null, 'x'`);
    await refused(`insert into svc.api_key (key_id, tenant_no, secret_hash, scopes, review_ref)
      values ('k', 1, ${hash}, '{}', '')`);
    await refused(`insert into svc.tile values (7, 1, 'x')`);
  });
});
