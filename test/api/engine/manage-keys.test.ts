import { describe, expect } from 'vitest';
import { apiKeySecretHash, newApiKey, parseApiKey } from '#runtime/crypto/api-key';
import { connect } from '#runtime/postgres/connect';
import { asTenants, transaction } from '#sql/db/transaction';
import { registerTenantApprover } from '#sql/lifecycle/approvers';
import {
  createTenantKey,
  revokeApiKey,
  revokeTenantKey,
  rotateApiKey,
} from '#sql/tenants/api-keys';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { TcpProxy } from '../../fixtures/tcp-proxy.js';
import { newApprover } from '../../fixtures/approvals.js';
import { headersFor, send, type Reply } from '../../fixtures/engine.js';
import { APPEND_LOCK, holdLock, untilWaiting } from '../../fixtures/hold-lock.js';
import { expectProblem } from '../../fixtures/problem.js';
import { engineTest, keyIdOf, type Setup } from './setup.js';

const it = engineTest();

const apiKeyBody = (members: Record<string, unknown>) => ({
  schema_version: 'svc.tenant.api_key_request/1.0',
  scopes: ['admit', 'read'],
  ...members,
});

const create = ({ post }: Setup, key: string, members: Record<string, unknown> = {}) =>
  post('/v1/keys', apiKeyBody(members), headersFor(key));

/** Creates a key with the authority of `key`, and returns the new key. */
async function created(setup: Setup, key: string, members: Record<string, unknown> = {}) {
  const reply = await create(setup, key, members);
  expect(reply.status).toBe(201);
  return String(reply.json['api_key']);
}

const revoke = ({ engine }: Setup, key: string, keyId: string): Promise<Reply> =>
  engine.call({ path: `/v1/keys/${keyId}/revoke`, headers: headersFor(key) });

const admit = ({ post }: Setup, key: string) =>
  post('/v1/agent/admissions', admissionEnvelope(), headersFor(key));

/** The HTTP status of an admission with each of these keys. */
const statuses = (setup: Setup, ...keys: string[]): Promise<number[]> =>
  Promise.all(keys.map(async (key) => (await admit(setup, key)).status));

interface Row {
  key_no: number;
  secret_hash: Buffer;
  review_ref: string;
  created_by: string | null;
}

async function rowOf({ db }: Setup, key: string): Promise<Row> {
  const [row] = await db.sql<Row[]>`select * from svc.api_key where key_id = ${keyIdOf(key)}`;
  return row!;
}

const latestActs = ({ db }: Setup, count: number) => db.sql`
  select db_role, actor, act, operation, coalesce(after, before) ->> 'key_id' as key_id
  from svc.audit order by audit_id desc limit ${count}`;

/** Issues a key that may create keys. */
const manager = ({ keyFor }: Setup, scopes = ['keys', 'admit', 'read']) => keyFor({ scopes });

describe('POST /v1/keys', () => {
  it("creates a restricted key with its creator's review reference and an audit record", async ({
    setup,
  }) => {
    const creator = await manager(setup);
    const restriction = { agent_id: 'agent-7', actions: ['BOOK_*'], tools: ['reservations.*'] };
    const reply = await create(setup, creator, { restriction, scopes: ['admit', 'admit'] });
    expect(reply.json).toMatchObject({ scopes: ['admit'], restriction, expires_at: null });
    const key = String(reply.json['api_key']);
    expect(await statuses(setup, key)).toEqual([200]);
    const other = admissionEnvelope({ agent: { id: 'agent-8' } });
    const rejected = await setup.post('/v1/agent/admissions', other, headersFor(key));
    expectProblem(rejected, 403, 'key_restricted');

    const row = await rowOf(setup, key);
    const { secret } = parseApiKey(key)!;
    expect(row.secret_hash.equals(apiKeySecretHash(secret))).toBe(true);
    expect(row).toMatchObject({ review_ref: 'test', created_by: keyIdOf(creator) });
    expect(await latestActs(setup, 1)).toEqual([
      {
        db_role: 'svc_engine',
        actor: `key ${keyIdOf(creator)}`,
        act: 'key create',
        operation: 'INSERT',
        key_id: keyIdOf(key),
      },
    ]);
    const list = await setup.get('/v1/keys', headersFor(creator));
    expect(list.json['keys']).toMatchObject([
      { key_id: keyIdOf(key), state: 'active', restriction, created_by: keyIdOf(creator) },
      { key_id: keyIdOf(creator), restriction: null, created_by: null },
      {},
    ]);
    expect(list.bytes.toString()).not.toContain(row.secret_hash.toString('hex'));
  });

  it('limits scopes and expiry of the new key to those of its creator', async ({ setup }) => {
    const expiresAt = Date.now() + 3_600_000;
    const creator = await setup.keyFor({ scopes: ['keys', 'read'], expiresAt });
    const rejected = await create(setup, creator, { scopes: ['read', 'admit'] });
    expectProblem(rejected, 403, 'scope_missing');
    expect(rejected.json).toMatchObject({ errors: [{ pointer: '/scopes/1' }] });
    expectProblem(await create(setup, creator, { scopes: ['admin'] }), 403, 'scope_missing');
    const end = new Date(expiresAt).toISOString();
    for (const given of [{}, { expires_at: '2036-12-31T23:59:59.000Z' }]) {
      const reply = await create(setup, creator, { scopes: ['keys'], ...given });
      expect(reply.json).toMatchObject({ expires_at: end });
    }
    const sooner = { scopes: ['read'], expires_at: new Date(expiresAt - 1).toISOString() };
    expect((await create(setup, creator, sooner)).json).toMatchObject(sooner);
  });

  it('rejects empty restrictions, and restricted keys that could manage keys', async ({
    setup,
  }) => {
    const restriction = { agent_id: 'agent-7' };
    for (const [members, pointer] of [
      [{ restriction: {} }, '/restriction'],
      [{ restriction: { tools: [] } }, '/restriction/tools'],
      [{ restriction: { actions: ['book'] } }, '/restriction/actions/0'],
      [{ restriction, scopes: ['admit', 'keys'] }, '/scopes/1'],
      [{ restriction, scopes: ['admin'] }, '/scopes/0'],
      [{ restriction, scopes: ['policy'] }, '/scopes/0'],
    ] as const) {
      const reply = await create(setup, setup.key, members);
      expectProblem(reply, 400, 'invalid_field');
      expect(reply.json).toMatchObject({ errors: [{ pointer }] });
    }
    // The database rejects such a key from any client, such as psql.
    const issued = setup.keyFor({ restriction, scopes: ['admin'] });
    await expect(issued).rejects.toThrow(/restricted_key_manages_no_keys/);
  });
});

it('a tenant creates at most 5,000 keys that are not revoked, and revokes a chain of them at once', async ({
  setup,
}) => {
  const { sql } = setup.db;
  const root = await manager(setup);
  // Each of these keys created the next.
  await sql`
    insert into svc.api_key (key_id, tenant_no, secret_hash, scopes, review_ref, created_by)
    select 'chain' || lpad(n::text, 7, '0'), tenant_no, secret_hash, scopes, review_ref,
      case when n = 1 then key_id else 'chain' || lpad((n - 1)::text, 7, '0') end
    from svc.api_key k, generate_series(1, 5000 - (select count(*) from svc.api_key u
      where u.tenant_no = k.tenant_no and u.revoked_at is null)) as n
    where key_id = ${keyIdOf(root)}`;
  expectProblem(await create(setup, root), 422, 'too_many_keys');
  const other = await setup.post('/v1/keys', apiKeyBody({}), await setup.tenant('unlimited'));
  expect(other.status).toBe(201);
  expect((await revoke(setup, root, keyIdOf(root))).status).toBe(204);
  const left = await sql`select from svc.api_key where key_id like 'chain%' and revoked_at is null`;
  expect(left).toEqual([]);
  await created(setup, setup.key);
});

describe('POST /v1/keys/{key_id}/revoke', () => {
  it('revokes the key, the keys that it created and the successors of these keys, but not its own successor', async ({
    setup,
  }) => {
    const root = await manager(setup);
    const child = await created(setup, root, { scopes: ['keys', 'admit'] });
    const grandchild = await created(setup, child, { scopes: ['admit'] });
    const sibling = await created(setup, root, { scopes: ['admit'] });
    const { keyId, secretHash, text: successor } = newApiKey();
    const rotation = { oldKeyId: keyIdOf(child), newKeyId: keyId, secretHash, overlap: 60 };
    await rotateApiKey(setup.registry.admin, rotation);
    expect(await statuses(setup, child, successor, grandchild)).toEqual([200, 200, 200]);

    expect((await revoke(setup, root, keyIdOf(child))).status).toBe(204);
    expect(await statuses(setup, child, successor, grandchild)).toEqual([401, 200, 401]);
    expect(await latestActs(setup, 2)).toMatchObject([
      { actor: `key ${keyIdOf(root)}`, act: 'key revoke', key_id: keyIdOf(grandchild) },
      { actor: `key ${keyIdOf(root)}`, act: 'key revoke', key_id: keyIdOf(child) },
    ]);
    const ended = await rowOf(setup, child);
    expect((await revoke(setup, root, keyIdOf(child))).status).toBe(204);
    // A key can revoke itself.
    expect((await revoke(setup, root, keyIdOf(root))).status).toBe(204);
    expect(await statuses(setup, root, sibling, successor)).toEqual([401, 401, 401]);
    // The repeated revocation changed nothing.
    expect(await rowOf(setup, child)).toEqual(ended);
  });

  it('rejects pending admissions of the revoked keys', async ({ setup }) => {
    const root = await manager(setup);
    const child = await created(setup, root);
    for (const change of [
      () => revoke(setup, setup.key, keyIdOf(root)),
      () => revokeApiKey(setup.registry.admin, keyIdOf(root)),
    ]) {
      const reply = await setup.whileItWaits(() => admit(setup, child), change);
      expectProblem(reply, 403, 'api_key_revoked');
      await setup.db
        .sql`update svc.api_key set revoked_at = null where created_by = ${keyIdOf(root)}`;
      await setup.db.sql`update svc.api_key set revoked_at = null where key_id = ${keyIdOf(root)}`;
    }
  });

  it('waits for the append lock, so that nothing is signed for the key afterwards', async ({
    setup,
  }) => {
    const key = await manager(setup);
    const unlock = await holdLock(setup.db.sql, APPEND_LOCK);
    let isAnswered = false;
    const revoking = revoke(setup, setup.key, keyIdOf(key)).finally(() => (isAnswered = true));
    await untilWaiting(setup.db.sql);
    expect(isAnswered).toBe(false);
    await unlock();
    expect((await revoking).status).toBe(204);
    // A repeated revocation does not wait for the append lock.
    const unlockAgain = await holdLock(setup.db.sql, APPEND_LOCK);
    expect((await revoke(setup, setup.key, keyIdOf(key))).status).toBe(204);
    await unlockAgain();
  });
});

it('the append lock > is released even if the engine that changes a key never reads the answer of PostgreSQL', async ({
  setup,
}) => {
  const { db, registry, keyFor } = setup;
  const { tenantNo } = registry;
  const url = db.urlFor('svc_engine');
  const proxy = await TcpProxy.open(url, 'other');
  const engine = connect(proxy.urlFor(url), { application: 'test-engine', max: 1 });
  const manager = await keyFor({ scopes: ['keys', 'approvers'] });
  const { key_no: managing } = await rowOf(setup, manager);
  const changes = [
    async () => revokeTenantKey(engine, tenantNo, managing, keyIdOf(await keyFor())),
    () => registerTenantApprover(engine, tenantNo, managing, newApprover().registration),
  ];
  try {
    for (const change of changes) {
      // The first call prepares the statement, so that the second call needs only one round trip.
      expect(await change()).toBeTruthy();
      const unlock = await holdLock(db.sql, APPEND_LOCK);
      const stalled = change().catch(() => 'lost');
      await untilWaiting(db.sql);
      proxy.stall(true);
      await unlock();
      await setup.admitOne();
      proxy.breakAll('end');
      expect(await stalled).toBe('lost');
      proxy.stall(false);
    }
  } finally {
    await engine.end({ timeout: 0 });
    await proxy.close();
  }
});

describe('revocation during another change', () => {
  it('revokes the concurrent successor of a key that the revoked key created', async ({
    setup,
  }) => {
    const { db, registry } = setup;
    const root = await manager(setup);
    const child = await created(setup, root);
    const { keyId, secretHash, text: successor } = newApiKey();
    const rotation = { oldKeyId: keyIdOf(child), newKeyId: keyId, secretHash, overlap: 60 };
    let revoking: Promise<unknown> | undefined;
    await transaction(registry.admin, async (tx) => {
      await rotateApiKey(tx, rotation);
      revoking = revoke(setup, setup.key, keyIdOf(root));
      await untilWaiting(db.sql);
    });
    await revoking;
    expect(await statuses(setup, child, successor)).toEqual([401, 401]);
  });

  it('revokes a key that the revoked key creates concurrently', async ({ setup }) => {
    const { db, registry } = setup;
    const root = await manager(setup);
    const set = `set revoked_at = now() where key_id = '${keyIdOf(root)}'`;

    // The creation runs first: the revocation waits for the creation, and then also revokes the new key.
    const fresh = newApiKey();
    const { key_no: managing } = await rowOf(setup, root);
    let revoking: Promise<unknown> | undefined;
    await asTenants(registry.engine, [registry.tenantNo], async (tx) => {
      await tx`select svc.create_api_key(${managing}, ${fresh.keyId}, ${fresh.secretHash},
        '{admit}', '{}', null)`;
      revoking = revokeApiKey(registry.admin, keyIdOf(root));
      await untilWaiting(db.sql);
    });
    await revoking;
    expect(await statuses(setup, root, fresh.text)).toEqual([401, 401]);

    // The revocation runs first: the creation waits for the revocation, and then fails.
    await db.sql`update svc.api_key set revoked_at = null where key_id = ${keyIdOf(root)}`;
    const connection = await db.sql.reserve();
    await connection.unsafe(`begin; update svc.api_key ${set}`);
    const creating = send(setup.engine.url, {
      path: '/v1/keys',
      headers: headersFor(root),
      body: JSON.stringify(apiKeyBody({})),
    });
    await untilWaiting(db.sql);
    await connection`commit`;
    connection.release();
    expectProblem(await creating, 401, 'unauthenticated');
  });
});

it('engine role > can change API keys only on behalf of a managing key of the tenant', async ({
  setup,
}) => {
  const { registry } = setup;
  const { engine, tenantNo } = registry;
  for (const statement of [
    `insert into svc.api_key (key_id, tenant_no, secret_hash, scopes, review_ref)
      values ('000000000001', ${String(tenantNo)}, '', '{admin}', 'x')`,
    `update svc.api_key set expires_at = null`,
    `update svc.api_key set revoked_at = now()`,
    `delete from svc.api_key`,
    `select svc.lock_managing_key(1, 'x')`,
  ]) {
    const run = asTenants(engine, [tenantNo], (tx) => tx.unsafe(statement));
    await expect(run).rejects.toThrow(/permission denied/);
  }

  const strangerNo = await registry.addTenant('stranger');
  const stranger = await setup.keyFor({ tenantId: 'stranger', scopes: ['admin'] });
  const victim = await setup.keyFor();
  const numbers = {
    reader: await setup.keyFor({ scopes: ['read', 'admit', 'lifecycle'] }),
    expired: await setup.keyFor({ scopes: ['keys', 'read'], expiresAt: Date.now() - 1 }),
    stranger,
  };
  const make = (tenant: number, managing: number, scopes: ('read' | 'export')[]) =>
    createTenantKey(engine, tenant, managing, {
      ...newApiKey(),
      scopes,
      restriction: null,
      expiresAt: null,
    });
  for (const [name, key] of Object.entries(numbers)) {
    const { key_no: managing } = await rowOf(setup, key);
    expect([name, await make(tenantNo, managing, ['read'])]).toEqual([name, null]);
    const outcome = await revokeTenantKey(engine, tenantNo, managing, keyIdOf(victim));
    expect([name, outcome]).toEqual([name, 'rejected']);
  }
  const { key_no: narrow } = await rowOf(setup, await setup.keyFor({ scopes: ['keys', 'read'] }));
  expect(await make(tenantNo, narrow, ['export'])).toBe(null);

  // A managing key cannot change keys of another tenant, even in a transaction for both tenants.
  const { key_no: foreign } = await rowOf(setup, stranger);
  await asTenants(engine, [tenantNo, strangerNo], async (tx) => {
    await tx`select svc.revoke_api_key(${foreign}, ${keyIdOf(victim)})`;
  });
  expect(await statuses(setup, victim)).toEqual([200]);
});
