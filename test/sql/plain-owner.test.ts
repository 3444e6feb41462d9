import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import postgres from 'postgres';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { packageRoot } from '#runtime/process/package-root';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';
import { acceptIntake } from '#sql/admissions/accept';
import { migrate } from '#sql/schema/migrate';
import { readProof } from '#sql/proofs/read';
import { assertRole } from '#sql/db/roles';
import { pendingDepth } from '#sql/admissions/outcomes';
import type { TestDatabase } from '../fixtures/database.js';
import { openRegistry } from '../fixtures/registry.js';

// A superuser bypasses row-level security, and other tests' schema owner is one.
const name = `plain_${randomBytes(4).toString('hex')}`;
const password = randomBytes(16).toString('hex');
const pools: Pool[] = [];
let db: TestDatabase;
let owner: Pool;

function urlFor(role: string, secret: string): string {
  const url = new URL(inject('postgres').url);
  url.pathname = `/${name}`;
  url.username = role;
  url.password = secret;
  return url.toString();
}

function open(url: string): Pool {
  const pool = connect(url, { application: 'test', max: 4 });
  pools.push(pool);
  return pool;
}

beforeAll(async () => {
  const superuser = postgres(inject('postgres').url, { max: 1, onnotice: () => undefined });
  await superuser.unsafe(`create role ${name} login createrole password '${password}'`);
  await superuser.unsafe(`create database ${name} owner ${name}`);
  await superuser.end();
  owner = open(urlFor(name, password));
  await migrate(owner, join(packageRoot, 'sql', 'migrations'));
  const roleUrl = (role: string): string => urlFor(role, inject('postgres').passwords[role] ?? '');
  const close = async (): Promise<void> => {
    await Promise.all(pools.splice(0).map((pool) => pool.end({ timeout: 5 })));
  };
  db = {
    name,
    close,
    url: urlFor(name, password),
    urlFor: roleUrl,
    sql: owner,
    as: (role) => open(roleUrl(role)),
    drop: async () => {
      await close();
      const last = postgres(inject('postgres').url, { max: 1, onnotice: () => undefined });
      await last.unsafe(`drop database ${name} with (force)`);
      await last.unsafe(`drop role ${name}`);
      await last.end();
    },
  };
});
afterAll(() => db.drop());

it('a registry with an unprivileged owner > works, and shows its owner no tenant rows', async () => {
  const registry = await openRegistry(db);
  await assertRole(registry.engine, 'engine');
  const [id = ''] = await registry.admitAll([registry.item()]);
  await registry.verifyAll();
  expect(await readProof(registry.engine, registry.tenantNo, id)).not.toBeNull();
  await acceptIntake(registry.engine, [registry.item(), registry.item()]);
  expect(await pendingDepth(registry.engine, 10)).toBe(2);
  for (const table of ['proof', 'intake', 'refusal']) {
    expect(await owner.unsafe(`select from svc.${table}`)).toHaveLength(0);
  }
  const acts = await owner<{ db_role: string }[]>`select db_role from svc.audit`;
  expect(new Set(acts.map((act) => act.db_role))).toContain('svc_admin');
});
