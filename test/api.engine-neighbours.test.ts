import { request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toHex, utf8 } from '#protocol/bytes';
import { documentHash } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { nativeSha256 } from '#runtime/crypto';
import { OPERATIONS } from '#api/engine/operations';
import { connect } from '#runtime/postgres';
import { createTenant, setAllowlisted } from '#sql/administration';
import { TENANT_CONNECTIONS, TenantConnections } from '#sql/tenant-connections';
import { TENANT_TABLES } from '#sql/tenant-tables';
import { testLog } from './helpers/checkpoints.js';
import { freshDatabase, type TestDatabase } from './helpers/database.js';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  type TestEngine,
} from './helpers/engine.js';
import { hold } from './helpers/held.js';
import { openRegistry, type TestRegistry } from './helpers/registry.js';
import type { Call, Reply } from './helpers/send.js';
import { eventually } from './helpers/stack.js';

const HOSTILE = 'hostile';
const NEIGHBOUR = 'neighbour';
/** Far more than the engine has connections. */
const REQUESTS = 64;
/** A transaction that holds this lock blocks every statement that serves the hostile tenant. */
const GATE = 4711;

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let key: string;
let hostileKey: string;
let neighbourKey: string;
let closePools: () => Promise<unknown>;
/** One of everything that the hostile tenant has, by its name in paths and bodies. */
let ids: Record<string, string>;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  for (const tenantId of [HOSTILE, NEIGHBOUR]) {
    await createTenant(registry.admin, { tenantId, environment: 'sandbox' });
    await setAllowlisted(registry.admin, tenantId, true);
  }
  neighbourKey = await issueKey(registry, { tenantId: NEIGHBOUR });
  key = await issueKey(registry);
  const scopes = ['admit', 'read', 'export', 'verify', 'lifecycle'];
  hostileKey = await issueKey(registry, { tenantId: HOSTILE, scopes });
  ids = await fillHostile();
  await db.sql.unsafe(`
    create function svc.test_gate() returns boolean language plpgsql stable as $$
    begin
      if (select tenant_no from svc.tenant where tenant_id = '${HOSTILE}') = any (svc.tenants_in_scope()) then
        perform pg_advisory_xact_lock_shared(${String(GATE)});
      end if;
      return true;
    end $$;
    grant execute on function svc.test_gate() to svc_engine;`);
  for (const table of TENANT_TABLES) {
    await db.sql.unsafe(`
      create policy gate on svc.${table} as restrictive for all to svc_engine
        using (svc.test_gate()) with check (svc.test_gate())`);
  }
  // The pools are as large as those of the engine program.
  const application = 'test-engine';
  const sql = connect(db.urlFor('svc_engine'), { application, max: 16 });
  const forTenants = connect(db.urlFor('svc_engine'), {
    application,
    max: TENANT_CONNECTIONS.total,
  });
  closePools = () => Promise.all([sql.end({ timeout: 5 }), forTenants.end({ timeout: 5 })]);
  const tenantSql = new TenantConnections({ ...TENANT_CONNECTIONS, sql: forTenants });
  engine = await startEngine(registry, { sql, tenantSql });
});
afterAll(async () => {
  await engine.close();
  await closePools();
  await db.drop();
});

/** Gives the hostile tenant rows of every kind, so that its statements have something to read. */
async function fillHostile(): Promise<Record<string, string>> {
  const plain = await startEngine(registry);
  const post = async (path: string, body: object): Promise<Reply['json']> => {
    const headers = headersFor(hostileKey, HOSTILE);
    const reply = await plain.call({ path, headers, body: JSON.stringify(body) });
    expect(reply.status).toBeLessThan(300);
    return reply.json;
  };
  const admit = () => post('/v1/intents/execute', executeBody({ tenant_id: HOSTILE }));
  const proof_ids = [await admit(), await admit()].map((one) => String(one['registry_proof_id']));
  const [proof_id = '', second = ''] = proof_ids;
  const batch = await post('/v1/batches', [executeBody({ tenant_id: HOSTILE })]);
  const packaged = await post('/v1/packages', {
    schema_version: 'svc.lifecycle.package_request/1.0',
    proof_ids,
  });
  const shared = await post('/v1/share-tokens', {
    schema_version: 'svc.lifecycle.share_token_request/1.0',
    artifact_kind: 'proof',
    proof_id,
  });
  await post(`/v1/proofs/${proof_id}/revocations`, {
    schema_version: 'svc.lifecycle.revocation_request/1.0',
    artifact_kind: 'certificate',
    reason: 'a mistake',
    actor: 'ops',
  });
  await registry.verifyAll();
  await testLog(db).publish();
  await plain.close();
  return {
    proof_id,
    second,
    parent_proof_id: proof_id,
    batch_id: String(batch['batch_id']),
    package_id: String(packaged['package_id']),
    token_hash: String(shared['token_hash']),
    artifact_kind: 'certificate',
    tenant_id: HOSTILE,
  };
}

/** Every operation that needs an API key. */
const operations = OPERATIONS.filter(({ spec }) => spec.scopes.length > 0).map(({ spec }) => ({
  name: `${spec.method.toUpperCase()} ${spec.path}`,
  spec,
  example: Object.values(spec.body?.examples ?? {})[0],
}));

function callOf({ spec, example }: (typeof operations)[number]): Call {
  const path = spec.path.replaceAll(/\{(\w+)\}/g, (_, name: string) => ids[name] ?? '');
  const own = (name: string, value: unknown): unknown => {
    if (name === 'proof_ids') return [ids['proof_id'], ids['second']];
    return typeof value === 'string' ? (ids[name] ?? value) : value;
  };
  const body = example === undefined ? {} : { body: JSON.stringify(example, own) };
  return { method: spec.method.toUpperCase(), path, ...body };
}

const asHostile = (call: Call): Promise<Reply> =>
  engine.call({ ...call, headers: headersFor(hostileKey, HOSTILE) });

/** Requests of another tenant, which share nothing with the hostile one but the engine. */
async function admitAndRead(): Promise<void> {
  const admitted = await engine.call({
    headers: headersFor(key),
    body: JSON.stringify(executeBody()),
  });
  expect(admitted.status).toBe(200);
  const path = `/v1/proofs/${String(admitted.json['registry_proof_id'])}`;
  for (const one of [path, '/v1/proofs?status=REVOKED&limit=1']) {
    const read = await engine.call({ method: 'GET', path: one, headers: headersFor(key) });
    expect(read.status).toBe(200);
  }
}

async function waitUntilBlocked(): Promise<void> {
  const blocked = async (): Promise<true | null> => {
    const found = await db.sql`
      select from pg_stat_activity
      where application_name = 'test-engine' and datname = current_database()
        and wait_event_type = 'Lock'`;
    return found.length > 0 ? true : null;
  };
  await eventually(blocked, 10_000, 'a blocked statement of the hostile tenant');
}

describe('engine with a tenant whose statements are blocked', () => {
  it.each(operations)(
    'serves other tenants beside 64 requests in flight: $name',
    async (operation) => {
      const call = callOf(operation);
      const open = await hold(db.sql, `select pg_advisory_xact_lock(${String(GATE)})`);
      const replies = Array.from({ length: REQUESTS }, () => asHostile(call));
      try {
        await waitUntilBlocked();
        await admitAndRead();
      } finally {
        await open();
      }
      for (const { status } of await Promise.all(replies))
        expect(status < 500 || status === 503).toBe(true);
    },
  );
});

describe('engine with an admission that waits for an open transaction', () => {
  it('admits everything else, of its tenant and of others', async () => {
    const body = executeBody();
    const request = utf8(JSON.stringify(body));
    const hash = documentHash(nativeSha256, body as JsonValue);
    // As a batch has it that brings the same item and is not committed yet.
    const close = await hold(
      db.sql,
      `insert into svc.intake (proof_id, tenant_no, lane, environment, request, request_hash,
          accepted_at, salt, policy_digest, validity)
        select gen_random_uuid(), ${String(registry.tenantNo)}, 1, environment,
          '\\x${toHex(request)}', '\\x${hash}', now(), salt, policy_digest, validity
        from svc.intake limit 1`,
    );
    const headers = headersFor(key);
    const equal = Array.from({ length: REQUESTS }, () =>
      engine.call({ headers, body: JSON.stringify(body) }),
    );
    try {
      await waitUntilBlocked();
      await admitAndRead();
      const other = executeBody({ tenant_id: HOSTILE });
      const reply = await asHostile({ body: JSON.stringify(other) });
      expect(reply.status).toBe(200);
    } finally {
      await close();
    }
    const answers = await Promise.all(equal);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(new Set(answers.map(({ json }) => json['registry_proof_id'])).size).toBe(1);
  });
});

describe('engine with as many slow uploads of batches as it takes in', () => {
  it('evicts one of them for a batch of another tenant', async () => {
    const requests = Array.from({ length: 4 }, (_, n) => {
      const [apiKey, tenant] = n % 2 === 0 ? [hostileKey, HOSTILE] : [neighbourKey, NEIGHBOUR];
      const request = httpRequest(new URL('/v1/batches', engine.url), {
        method: 'POST',
        headers: headersFor(apiKey, tenant),
      });
      // More than one write, so that the headers are sent and the body goes on.
      request.write('[');
      return request;
    });
    const answers = requests.map((request) => statusOf(request));
    const body = JSON.stringify([executeBody()]);
    const call = { path: '/v1/batches', headers: headersFor(key), body };
    await eventually(
      async () => ((await engine.call(call)).status === 503 ? true : null),
      10_000,
      'four uploads',
    );
    await eventually(
      async () => ((await engine.call(call)).status === 202 ? true : null),
      10_000,
      'a place for the batch',
    );
    expect(await Promise.race(answers)).toEqual([408, 'upload_too_slow']);
    for (const request of requests) request.destroy();
    await Promise.allSettled(answers);
  });
});

function statusOf(request: ClientRequest): Promise<[number | undefined, unknown]> {
  return new Promise((resolve, reject) => {
    request.on('error', reject);
    request.on('response', (response: IncomingMessage) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () => {
        const { code } = JSON.parse(Buffer.concat(chunks).toString()) as { code: unknown };
        resolve([response.statusCode, code]);
      });
    });
  });
}
