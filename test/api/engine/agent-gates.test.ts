import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createTenant, setAllowlisted, setLane } from '#sql/tenants/administration';
import { admissionEnvelope, agentCalls, outcomeEnvelope } from '../../fixtures/agent.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  type TestEngine,
  without,
} from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { openRegistry, TENANT, type TestRegistry } from '../../fixtures/registry.js';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let key: string;
const admit = agentCalls(
  () => engine,
  () => key,
);

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  engine = await startEngine(registry);
  key = await issueKey(registry);
});
afterEach(async () => {
  engine.worker.rests = false;
  await engine.worker.work();
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});

/** Sends the request while the worker is paused, applies a change and resumes the worker. */
async function whileItWaits(body: Record<string, unknown>, change: () => Promise<unknown>) {
  engine.worker.rests = true;
  const waiting = admit(body);
  await expect.poll(() => engine.worker.jobs.length).toBe(1);
  await change();
  await engine.worker.work();
  engine.worker.rests = false;
  return waiting;
}

describe('agent envelope validation', () => {
  const outcome = outcomeEnvelope('019aa2c1e07b7c0f8a3e5d6b7c8d9e0f');
  it.each<[string, Record<string, unknown>, string, string]>([
    ['of the other lane', executeBody(), 'unsupported_schema_version', '/schema_version'],
    [
      'without a version',
      without(admissionEnvelope(), 'schema_version'),
      'missing_field',
      '/schema_version',
    ],
    ['without a kind', without(admissionEnvelope(), 'kind'), 'missing_field', '/kind'],
    ['of an unknown kind', admissionEnvelope({ kind: 'guess' }), 'invalid_field', '/kind'],
    ['without a nonce', without(admissionEnvelope(), 'nonce'), 'missing_field', '/nonce'],
    ['with a short nonce', admissionEnvelope({ nonce: 'short' }), 'invalid_field', '/nonce'],
    ['without an agent', without(admissionEnvelope(), 'agent'), 'missing_field', '/agent'],
    ['with an agent without id', admissionEnvelope({ agent: {} }), 'missing_field', '/agent/id'],
    [
      'with the arguments themselves',
      admissionEnvelope({ arguments: { seats: 2 } }),
      'unknown_field',
      '/arguments',
    ],
    [
      'with an upper-case hash',
      admissionEnvelope({ arguments_hash: 'A'.repeat(64) }),
      'invalid_field',
      '/arguments_hash',
    ],
    ['with a result', admissionEnvelope({ result: 'succeeded' }), 'unknown_field', '/result'],
    [
      'with another spelling of a time',
      admissionEnvelope({ requested_at: '2026-11-20T17:29:00Z' }),
      'invalid_field',
      '/requested_at',
    ],
    [
      'an outcome without parent',
      without(outcome, 'parent_proof_id'),
      'missing_field',
      '/parent_proof_id',
    ],
    ['an outcome with an action', { ...outcome, action: 'A' }, 'unknown_field', '/action'],
    ['an outcome of a third kind', { ...outcome, result: 'so-so' }, 'invalid_field', '/result'],
    ['null for what is absent', admissionEnvelope({ tool: null }), 'invalid_field', '/tool'],
  ])('%s is refused, and told where', async (_, body, code, pointer) => {
    const reply = await admit(body);
    expectProblem(reply, 400, code);
    expect((reply.json['errors'] as { pointer: string }[])[0]?.pointer).toBe(pointer);
  });
});

describe('agent admission checks', () => {
  it('run in the documented order', async () => {
    const tenant = 'walker';
    await createTenant(registry.admin, { tenantId: tenant, environment: 'live' });
    const walker = await issueKey(registry, { tenantId: tenant, scopes: ['read'] });
    const own = { tenant_id: tenant };
    const bound = admissionEnvelope(own);
    const request = {
      path: '/v1/agent/admissions',
      headers: {
        'X-Svc-Api-Key': 'wrong',
        'X-Svc-Tenant-Id': 'wrong',
        'X-Svc-Idempotency-Key': 'é',
        'svc-api-version': 'v2',
        'Content-Type': 'text/plain',
        Accept: 'image/png',
      } as Record<string, string>,
      body: 'x'.repeat(2 * 1024 * 1024),
    };
    const { headers } = request;
    const rateOf = (limit: number | null) =>
      db.sql`update svc.tenant set rate_limit = ${limit} where tenant_id = ${tenant}`;
    const say = (body: unknown) => (request.body = JSON.stringify(body));
    const walk: [number, string, () => unknown][] = [
      [401, 'unauthenticated', () => (headers['X-Svc-Api-Key'] = walker)],
      [429, 'rate_limited', () => rateOf(null)],
      [423, 'lane_locked', () => setLane(registry.admin, 'live', true)],
      [403, 'tenant_mismatch', () => delete headers['X-Svc-Tenant-Id']],
      [403, 'tenant_header_missing', () => (headers['X-Svc-Tenant-Id'] = tenant)],
      [
        403,
        'scope_missing',
        () =>
          db.sql`update svc.api_key set scopes = '{admit}' where key_id = ${walker.slice(7, 19)}`,
      ],
      [403, 'tenant_not_allowlisted', () => setAllowlisted(registry.admin, tenant, true)],
      [415, 'unsupported_media_type', () => (headers['Content-Type'] = 'application/json')],
      [413, 'body_too_large', () => (request.body = '{"tenant_id":1')],
      [406, 'not_acceptable', () => (headers['Accept'] = 'application/json')],
      [400, 'unsupported_api_version', () => (headers['svc-api-version'] = 'v1')],
      [400, 'invalid_idempotency_key', () => (headers['X-Svc-Idempotency-Key'] = 'bound')],
      [400, 'malformed_json', () => say({ schema_version: '0' })],
      [
        400,
        'unsupported_schema_version',
        () => say(outcomeEnvelope('019aa2c1e07b7c0f8a3e5d6b7c8d9e0f')),
      ],
      [
        403,
        'tenant_body_mismatch',
        () => say(outcomeEnvelope('019aa2c1e07b7c0f8a3e5d6b7c8d9e0f', own)),
      ],
      [422, 'parent_not_found', () => say(admissionEnvelope(own))],
      [422, 'idempotency_conflict', () => say(bound)],
    ];
    await rateOf(1);
    for (const [status, code, mend] of walk) {
      if (code === 'rate_limited') await engine.call(request);
      if (code === 'idempotency_conflict') {
        const first = await engine.call({ ...request, body: JSON.stringify(bound) });
        expect(first.json).toMatchObject({ code: 'policy_denied' });
      }
      expectProblem(await engine.call(request), status, code);
      await mend();
    }
    // All checks pass here; the shipped policy permits only the sandbox.
    expectProblem(await engine.call(request), 403, 'policy_denied');
    await setLane(registry.admin, 'live', false);
  });

  it('reject waiting envelopes when the environment is locked', async () => {
    const reply = await whileItWaits(admissionEnvelope(), async () => {
      await setLane(registry.admin, 'sandbox', false);
      expectProblem(await admit(admissionEnvelope()), 423, 'lane_locked');
    });
    await setLane(registry.admin, 'sandbox', true);
    expectProblem(reply, 423, 'lane_locked');
  });

  it('reject everything when ADMISSIONS_PAUSED is set', async () => {
    const locked = await startEngine(registry, { admissionsPaused: true });
    const reply = await locked.call({
      path: '/v1/agent/admissions',
      headers: headersFor(key),
      body: JSON.stringify(admissionEnvelope()),
    });
    expectProblem(reply, 423, 'lane_locked');
    await locked.close();
  });

  it('reject waiting envelopes when the tenant leaves the allowlist', async () => {
    const body = admissionEnvelope();
    const reply = await whileItWaits(body, async () => {
      await setAllowlisted(registry.admin, TENANT, false);
      expectProblem(await admit(admissionEnvelope()), 403, 'tenant_not_allowlisted');
    });
    await setAllowlisted(registry.admin, TENANT, true);
    expectProblem(reply, 403, 'tenant_not_allowlisted');
    // What was refused has no proof, so the same body may be admitted now.
    expect((await admit(body)).status).toBe(200);
  });
});
