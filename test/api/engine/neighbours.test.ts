import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, vi } from 'vitest';
import { toHex, utf8 } from '#protocol/bytes';
import { documentHash } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { nativeSha256 } from '#runtime/crypto/node';
import type { OperationSpec } from '#api/engine/operation';
import { OPERATIONS } from '#api/engine/operations';
import { Limiter } from '#runtime/concurrency';
import { connect } from '#runtime/postgres/connect';
import { frozenRights } from '#sql/db/roles';
import type { Pool } from '#sql/db/transaction';
import { TENANT_CONNECTIONS } from '#api/engine/context';
import { batchCall, executeBodies } from '../../fixtures/batches.js';
import { exampleCall } from '../../fixtures/contract-checks.js';
import type { TestDatabase } from '../../fixtures/database.js';
import { executeBody, headersFor, startEngine, type TestEngine } from '../../fixtures/engine.js';
import { holdLock, untilWaiting } from '../../fixtures/hold-lock.js';
import type { TestRegistry } from '../../fixtures/registry.js';
import type { Call, Reply } from '../../fixtures/send.js';
import { engineTest, fillTenant } from './setup.js';

const HOSTILE = 'hostile';
/** More requests than the engine has database connections. */
const REQUESTS = 24;
/** A transaction that holds this lock blocks every statement that serves the hostile tenant. */
const GATE = 4711;
const APPLICATION = 'test-engine';

const it = engineTest();

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let key: string;
let hostile: Record<string, string>;
let enginePool: Pool;
let closePools: () => Promise<unknown>;
/** Ids of one resource of each kind of the hostile tenant, keyed by the parameter or member that takes the id. */
let ids: Record<string, string>;

it.beforeAll(async ({ setup }) => {
  ({ db, registry, key } = setup);
  hostile = await setup.tenant(HOSTILE);
  const made = await fillTenant(setup, HOSTILE, hostile);
  const own = { artifact_kind: 'certificate', tenant_id: HOSTILE };
  ids = { ...made, ...own, parent_proof_id: made.proof_id };
  await db.sql.unsafe(`
    create function svc.test_gate() returns boolean language plpgsql stable as $$
    begin
      if (select tenant_no from svc.tenant where tenant_id = '${HOSTILE}') = any (svc.tenants_in_scope()) then
        perform pg_advisory_xact_lock_shared(${String(GATE)});
      end if;
      return true;
    end $$;
    grant execute on function svc.test_gate() to svc_engine;`);
  for (const table of (await frozenRights()).tenantTables) {
    await db.sql.unsafe(`
      create policy gate on svc.${table} as restrictive for all to svc_engine
        using (svc.test_gate()) with check (svc.test_gate())`);
  }
  // The pools have the size that the engine program gives them.
  const pool = (max: number) => connect(db.urlFor('svc_engine'), { application: APPLICATION, max });
  const [sql, tenantSql] = [pool(16), pool(TENANT_CONNECTIONS.total)];
  closePools = () => Promise.all([sql.end({ timeout: 5 }), tenantSql.end({ timeout: 5 })]);
  enginePool = sql;
  engine = await startEngine(registry, { sql, tenantSql });
});
it.afterAll(async () => {
  await engine.close();
  await closePools();
});

/** Every operation that needs an API key. */
const specs = OPERATIONS.map(({ spec }) => spec).filter(({ scopes }) => scopes.length > 0);

function callOf(spec: OperationSpec): Call {
  const call = exampleCall(spec, ids, spec.path.includes('{run}') ? '?agent=agent-7' : '');
  const own = { ...(call.body !== undefined && (JSON.parse(String(call.body)) as object)) };
  if (!('proof_ids' in own)) return call;
  return { ...call, body: JSON.stringify({ ...own, proof_ids: [ids['proof_id'], ids['second']] }) };
}

const asHostile = (call: Call): Promise<Reply> => engine.call({ ...call, headers: hostile });

/** Requests of another tenant, which shares only the engine with the hostile tenant. */
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

const untilBlocked = () => untilWaiting(db.sql, 1, APPLICATION);

it('an engine serves other tenants while many requests of one tenant wait in every operation', async () => {
  const open = await holdLock(db.sql, `select pg_advisory_xact_lock(${String(GATE)})`);
  // One operation at a time, because the requests to one operation could take every connection.
  const waiting: Promise<Reply[]>[] = [];
  try {
    for (const spec of specs) {
      const call = callOf(spec);
      waiting.push(Promise.all(Array.from({ length: REQUESTS }, () => asHostile(call))));
      await untilBlocked();
      await admitAndRead();
    }
  } finally {
    await open();
  }
  const replies = (await Promise.all(waiting)).flat();
  expect(replies.filter(({ status }) => status >= 500 && status !== 503)).toEqual([]);
  expect(new Set(replies.map(({ json }) => json['code']))).toContain('tenant_busy');
});

/**
 * Opens a transaction that inserts this body as a batch does. Returns a function that aborts the
 * transaction.
 */
function openBatchWith(body: object): Promise<() => Promise<void>> {
  const request = utf8(JSON.stringify(body));
  const hash = documentHash(nativeSha256, body as JsonValue);
  return holdLock(
    db.sql,
    `insert into svc.intake (proof_id, tenant_no, lane, environment, request, request_hash,
        accepted_at, seed, policy_digest, validity)
      select gen_random_uuid(), ${String(registry.tenantNo)}, 1, environment,
        '\\x${toHex(request)}', '\\x${hash}', now(), seed, policy_digest, validity
      from svc.intake limit 1`,
  );
}

it('engine with an admission that waits for an open transaction > admits all other requests of its tenant and of other tenants', async () => {
  const body = executeBody();
  const close = await openBatchWith(body);
  const headers = headersFor(key);
  const equal = Array.from({ length: REQUESTS }, () =>
    engine.call({ headers, body: JSON.stringify(body) }),
  );
  try {
    await untilBlocked();
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

it('batch upload > waits for a commit slot when all slots are taken', async () => {
  // Under load, the first batch may need longer than the second may wait.
  const { run } = Limiter.prototype;
  vi.spyOn(Limiter.prototype, 'run').mockImplementation(function (this: Limiter, owner, work) {
    return run.call(this, owner, work, 60_000);
  });
  onTestFinished(() => void vi.restoreAllMocks());
  const narrow = await startEngine(registry, { batchesAtOnce: 1, sql: enginePool });
  const open = await holdLock(db.sql, `select pg_advisory_xact_lock(${String(GATE)})`);
  const items = executeBodies(1, { tenant_id: HOSTILE });
  const replies = [narrow.call(batchCall(hostile['X-Svc-Api-Key']!, items, {}, HOSTILE))];
  try {
    await untilBlocked();
    replies.push(narrow.call(batchCall(key, executeBodies(1))));
    // A second batch that does not wait for a slot would be answered before the first one.
    expect(await Promise.race([...replies, sleep(500, 'none')])).toBe('none');
  } finally {
    await open();
  }
  expect((await Promise.all(replies)).map(({ status }) => status)).toEqual([202, 202]);
  await narrow.close();
});
