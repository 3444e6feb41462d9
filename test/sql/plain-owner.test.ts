import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { migrateDatabase } from '#programs/migrate-database';
import { packageRoot } from '#runtime/process/files';
import { connect, type Sql } from '#runtime/postgres/connect';
import { acceptIntake } from '#sql/admissions/intake';
import { pendingDepth } from '#sql/admissions/pending';
import { migrate } from '#sql/schema/migrate';
import { readProof } from '#sql/proofs/read';
import { eraseAdopted, erasePayloads } from '#sql/erasure/erase';
import { adoptEntries, beginAdoption, finishAdoption } from '#sql/log/adopt';
import { parseApiKey } from '#runtime/crypto/api-key';
import { proofEntryBytes } from '#protocol/entries';
import { formatTime } from '#protocol/time';
import { transaction } from '#sql/db/transaction';
import { assertRole } from '#sql/db/roles';
import { registerTenantApprover } from '#sql/lifecycle/approvers';
import { createShareToken, shareChangesSince } from '#sql/lifecycle/share-tokens';
import { newApprover } from '../fixtures/approvals.js';
import type { TestDatabase } from '../fixtures/database.js';
import { issueKey } from '../fixtures/engine.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';

/**
 * In other tests the schema's owner is a superuser, who bypasses row-level security. Row-level
 * security applies to this owner, and to functions and triggers that run as the owner.
 */
const name = `plain-${randomBytes(4).toString('hex')}`;
const quoted = `"${name}"`;
const password = randomBytes(16).toString('hex');
const pools: Sql[] = [];
let db: TestDatabase;
let registry: TestRegistry;

function open(database: string, role?: string, secret = ''): Sql {
  const url = new URL(inject('postgres').url);
  url.pathname = `/${database}`;
  if (role !== undefined) Object.assign(url, { username: role, password: secret });
  const pool = connect(url.toString(), { application: 'test', max: 2 });
  pools.push(pool);
  return pool;
}

beforeAll(async () => {
  const server = open('postgres');
  await server.unsafe(`create role ${quoted} login createrole password '${password}'`);
  await server.unsafe(`create database ${quoted} owner ${quoted}`);
  const owner = open(name, name, password);
  await migrate(owner, join(packageRoot, 'sql', 'migrations'));
  const { passwords } = inject('postgres');
  const close = async () => void (await Promise.all(pools.splice(0).map((pool) => pool.end())));
  const urlFor = () => '';
  const as = (role: string): Sql => open(name, role, passwords[role]);
  const drop = async (): Promise<void> => {
    await close();
    const last = open('postgres');
    await last.unsafe(`drop database ${quoted} with (force)`);
    await last.unsafe(`drop role ${quoted}`);
    await last.end();
  };
  db = { name, close, url: '', urlFor, sql: owner, as, drop };
  registry = await openRegistry(db);
});
afterAll(() => db.drop());

it('registry whose owner is not a superuser > works, and hides tenant rows from its owner', async () => {
  await assertRole(registry.engine, 'engine');
  const [id = ''] = await registry.admitAll([registry.item()]);
  await registry.verifyAll();
  expect(await readProof(registry.engine, registry.tenantNo, id)).not.toBeNull();
  const pending = registry.item();
  await acceptIntake(registry.engine, [pending, registry.item()]);
  expect(await pendingDepth(registry.engine, 10)).toBe(2);
  const tokenHash = randomBytes(32);
  const target = { artifactKind: 'proof' as const, proofId: id };
  const token = { tokenHash, keyNo: 1, target, expiresAt: Date.now() + 60_000 };
  await createShareToken(registry.engine, registry.tenantNo, token);
  const changes = [{ changeNo: 1, tokenHash: tokenHash.toString('hex') }];
  expect(await shareChangesSince(db.as('svc_publisher'), 0, 10)).toEqual(changes);
  expect(await db.as('svc_verifier')`select from svc.share_due`).toHaveLength(1);
  const proofs = 'log_entry where kind = 1';
  for (const table of [proofs, 'intake', 'refusal', 'share_token', 'grant_change']) {
    expect(await db.sql.unsafe(`select from svc.${table}`)).toHaveLength(0);
  }
  const key = await issueKey(registry, { scopes: ['approvers'] });
  const [managing] = await registry.admin<{ no: number }[]>`
    select key_no as no from svc.api_key where key_id = ${parseApiKey(key)!.keyId}`;
  const { registration } = newApprover();
  expect(
    await registerTenantApprover(registry.engine, registry.tenantNo, managing!.no, registration),
  ).toMatchObject({ registration, state: 'active' });
  const order = { actor: 'a', reasonRef: 'r' };
  await transaction(db.as('svc_erase'), (tx) => erasePayloads(tx, [id], order));
  expect(await db.sql`select from svc.log_entry where kind = 4`).toHaveLength(1);
  const adopted = proofEntryBytes({
    proof_id: pending.proofId,
    aep_hash: 'ab'.repeat(32),
    proof_record_hash: 'cd'.repeat(32),
    effect: 'DENY',
    environment: 'sandbox',
    key_id: 'A'.repeat(43),
    valid_until: { proof: null },
    time: formatTime(Date.now()),
  });
  await transaction(db.as('svc_erase'), async (tx) => {
    const size = await beginAdoption(tx, 'test.example/log');
    await adoptEntries(tx, size, [adopted]);
    await finishAdoption(tx, size);
    expect(await eraseAdopted(tx, size, order)).toBe(1);
  });
  expect(await pendingDepth(registry.engine, 10)).toBe(1);
  const acts = await db.sql<{ db_role: string }[]>`select db_role from svc.audit`;
  expect(new Set(acts.map((act) => act.db_role))).toContain('svc_admin');
});

it('migrateDatabase > names the grant that an owner of roles needs after a move to PostgreSQL 16', async ({
  skip,
}) => {
  const [{ version }] = await db.sql<[{ version: number }]>`
    select current_setting('server_version_num')::int as version`;
  // Would set the passwords of all other tests: before version 16, every creator of roles administers all roles.
  skip(version < 160_000, 'PostgreSQL 15 or older');
  // A superuser created the roles, as a restored dump of an older version does.
  const url = new URL(inject('postgres').url);
  Object.assign(url, { pathname: name, username: name, password });
  const grant = new RegExp(
    `denied .*superuser .*: grant svc_engine, .* to ${quoted} with admin true`,
  );
  await expect(migrateDatabase(url.href, () => 'new')).rejects.toThrow(grant);
});
