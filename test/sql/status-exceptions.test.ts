import { randomBytes } from 'node:crypto';
import { cp, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { packageRoot } from '#runtime/process/package-root';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';
import { migrate } from '#sql/schema/migrate';

const MIGRATIONS = join(packageRoot, 'sql', 'migrations');
const name = `exceptions_${randomBytes(4).toString('hex')}`;
let server: Pool;
let sql: Pool;
let folder: string;

beforeAll(async () => {
  const url = new URL(inject('postgres').url);
  server = connect(url.toString(), { application: 'test', max: 1 });
  await server.unsafe(`create database ${name}`);
  url.pathname = `/${name}`;
  sql = connect(url.toString(), { application: 'test', max: 2 });
  folder = await mkdtemp(join(tmpdir(), 'svc-migrations-'));
  for (const file of (await readdir(MIGRATIONS)).filter((one) => one < '0014')) {
    await cp(join(MIGRATIONS, file), join(folder, file));
  }
  await migrate(sql, folder);
});
afterAll(async () => {
  await sql.end();
  await server.unsafe(`drop database ${name} with (force)`);
  await server.end();
  await rm(folder, { recursive: true });
});

it('migration 0014 > lists every proof whose status may differ from VALID, once', async () => {
  await sql.begin(async (tx) => {
    await tx.unsafe(`
      set local session_replication_role = replica; -- no parents, and no triggers
      create temp table leaf on commit drop as
        select n, gen_random_uuid() as id from generate_series(0, 9) n;
      insert into svc.log_entry (leaf_index, kind, proof_id, at, aep_hash, proof_record_hash)
        select n, 1, id, now(), sha256('a'), sha256('b') from leaf;
      insert into svc.proof (proof_id, leaf_index, effect, environment, key_id, tenant_no, lane)
        select id, n, 'ADMIT', 'sandbox', 'k', 1 + n % 2, 1 from leaf;
      -- Revoked: 1. Erased: 1, 2 and an admission without a proof.
      insert into svc.log_entry (leaf_index, kind, proof_id, at, body)
        select 10, 2, id, now(), '{}' from leaf where n = 1;
      insert into svc.erasure (proof_id, leaf_index, actor, reason_ref)
        select id, n, 'ops', 'case-1' from leaf where n in (1, 2)
        union all select gen_random_uuid(), null, 'ops', 'case-2';
      -- Overridden: 3. In a range that expired: 6 and 7; that failed: 8.
      insert into svc.verdict (frontier, first_index, last_index, tree_size, root, subtrees,
        keys_digest, outcome, expired, checks)
      select frontier, first, last, last + 1, sha256('a'), '', sha256('b'), outcome, expired::text[], '{}'
      from (values (true, 0, 5, 'pass', '{}'), (false, 3, 3, 'pass', '{}'),
        (true, 6, 7, 'pass', '{trust}'), (true, 8, 8, 'fail', '{}'), (true, 9, 10, 'pass', '{}'))
        as v(frontier, first, last, outcome, expired);`);
  });
  await migrate(sql, MIGRATIONS);
  const listed = await sql<{ tenant_no: number; leaf_index: number }[]>`
    select tenant_no, leaf_index from svc.status_exception order by leaf_index`;
  expect(listed.map((row) => [row.leaf_index, row.tenant_no])).toEqual(
    [1, 2, 3, 6, 7, 8].map((leaf) => [leaf, 1 + (leaf % 2)]),
  );
});
