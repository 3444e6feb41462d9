import { describe, expect } from 'vitest';
import { agentReceiptSchema } from '#protocol/schemas/index';
import { createTenant, setAllowlisted, setLane } from '#sql/tenants/administration';
import { admissionEnvelope, outcomeEnvelope } from '../../fixtures/agent.js';
import { executeBody, type Reply } from '../../fixtures/engine.js';
import { eraseProof } from '../../fixtures/erase.js';
import { expectProblem } from '../../fixtures/problem.js';
import { engineTest, keyIdOf, type Setup } from './setup.js';

const PATH = '/v1/agent/admissions';
const ABSENT_ID = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';

type Fields = Record<string, unknown>;

const it = engineTest().extend<{
  admit: (body: Fields | string, headers?: Record<string, string>) => Promise<Reply>;
  /** Admits an envelope and returns the proof id. */
  proved: (body?: Fields) => Promise<string>;
  /** Admits an execution and returns the proof id. */
  executed: (fields?: Fields) => Promise<string>;
}>({
  admit: async ({ setup: { post } }, use) =>
    use((body, headers) => post(PATH, body, headers ?? {})),
  proved: async ({ admit }, use) =>
    use(async (body = admissionEnvelope()) => {
      const reply = await admit(body);
      expect(reply.status).toBe(200);
      return String(reply.json['registry_proof_id']);
    }),
  executed: async ({ setup: { execute } }, use) =>
    use(async (fields = {}) => {
      const { json } = await execute(executeBody(fields));
      return String(((json['receipt'] ?? json) as Fields)['registry_proof_id']);
    }),
});

async function subjectOf({ get }: Setup, proofId: string): Promise<unknown> {
  const { json } = await get(`/v1/proofs/${proofId}`);
  return (json['aep'] as Fields)['subject'];
}

describe('outcome envelope', () => {
  it('is linked to an admitted action of either request type', async ({
    executed,
    proved,
    setup,
  }) => {
    for (const parent of [await proved(), await executed()]) {
      const body = outcomeEnvelope(parent, { result: 'failed', result_hash: 'a'.repeat(64) });
      expect(await subjectOf(setup, await proved(body))).toEqual({
        kind: 'outcome',
        agent: { ...(body['agent'] as object), bound: false },
        parent_proof_id: parent,
        result: 'failed',
      });
    }
  });

  it('gets 422 when its parent is a denial or an outcome', async ({ admit, executed, proved }) => {
    const denial = await admit(admissionEnvelope({ action: 'DELETE_AUDIT_LOG' }));
    const denied = agentReceiptSchema.parse(denial.json['receipt']).registry_proof_id;
    const outcome = await proved(outcomeEnvelope(await proved()));
    for (const parent of [denied, await executed({ action: 'DELETE_AUDIT_LOG' }), outcome]) {
      expectProblem(await admit(outcomeEnvelope(parent)), 422, 'parent_not_admitted');
    }
    await proved(admissionEnvelope({ parent_proof_id: outcome }));
  });

  it('gets 422 while the parent admission is pending', async ({ admit, setup }) => {
    let outcome: Fields = {};
    await setup.whileItWaits(
      () => admit(admissionEnvelope()),
      async () => {
        const [[parent = ''] = []] = setup.engine.worker.jobs;
        outcome = outcomeEnvelope(parent);
        expectProblem(await admit(outcome), 422, 'parent_not_found');
      },
    );
    expect((await admit(outcome)).status).toBe(200);
  });

  it('gets the first receipt again, even after its parent was erased', async ({
    admit,
    proved,
    setup: { db, post },
  }) => {
    const parent = await proved();
    const outcome = outcomeEnvelope(parent);
    const first = await admit(outcome);
    await eraseProof(db, parent);
    const repeated = await admit(outcome);
    expect(repeated).toMatchObject({ status: 200, bytes: first.bytes });
    const other = outcomeEnvelope(parent);
    expectProblem(await admit(other), 422, 'parent_not_found');
    const batch = await post('/v1/batches', [outcome, other]);
    expect(batch.json['counts']).toMatchObject({ admitted: 1, invalid: 1 });
  });
});

it('admission checks > run in the documented order', async ({
  setup: { db, engine, keyFor, registry },
}) => {
  const tenant = 'walker';
  await createTenant(registry.admin, { tenantId: tenant, environment: 'live' });
  const walker = await keyFor({ tenantId: tenant, scopes: ['read'] });
  const own = { tenant_id: tenant };
  const bound = admissionEnvelope(own);
  const child = admissionEnvelope({ ...own, parent_proof_id: ABSENT_ID });
  const headers: Record<string, string> = {
    'X-Svc-Api-Key': 'wrong',
    'X-Svc-Tenant-Id': 'wrong',
    'X-Svc-Idempotency-Key': 'é',
    'svc-api-version': 'v2',
    'Content-Type': 'text/plain',
    Accept: 'image/png',
  };
  const request = { path: PATH, headers, body: 'x'.repeat(2 * 1024 * 1024) };
  const rateOf = (limit: number | null) =>
    db.sql`update svc.tenant set rate_limit = ${limit} where tenant_id = ${tenant}`;
  const admitScope = () =>
    db.sql`update svc.api_key set scopes = '{admit}' where key_id = ${keyIdOf(walker)}`;
  const send = (body: unknown) => (request.body = JSON.stringify(body));
  const walk: [status: number, code: string, correct: () => unknown][] = [
    [401, 'unauthenticated', () => (headers['X-Svc-Api-Key'] = walker)],
    [429, 'rate_limited', () => rateOf(null)],
    [423, 'lane_locked', () => setLane(registry.admin, 'live', true)],
    [403, 'tenant_mismatch', () => delete headers['X-Svc-Tenant-Id']],
    [403, 'tenant_header_missing', () => (headers['X-Svc-Tenant-Id'] = tenant)],
    [403, 'scope_missing', admitScope],
    [403, 'tenant_not_allowlisted', () => setAllowlisted(registry.admin, tenant, true)],
    [415, 'unsupported_media_type', () => (headers['Content-Type'] = 'application/json')],
    [413, 'body_too_large', () => (request.body = '{"tenant_id":1')],
    [406, 'not_acceptable', () => (headers['Accept'] = 'application/json')],
    [400, 'unsupported_api_version', () => (headers['svc-api-version'] = 'v1')],
    [400, 'invalid_idempotency_key', () => (headers['X-Svc-Idempotency-Key'] = 'bound')],
    [400, 'malformed_json', () => send({ schema_version: '0' })],
    [400, 'unsupported_schema_version', () => send(outcomeEnvelope(ABSENT_ID))],
    [403, 'tenant_body_mismatch', () => send({ ...child, facts: { amount: 1 } })],
    [400, 'invalid_fact', () => send(child)],
    [422, 'parent_not_found', () => send(admissionEnvelope(own))],
    [422, 'idempotency_conflict', () => send(bound)],
  ];
  await rateOf(1);
  for (const [status, code, correct] of walk) {
    if (code === 'rate_limited') await engine.call(request);
    if (code === 'idempotency_conflict') {
      const first = await engine.call({ ...request, body: JSON.stringify(bound) });
      expect(first.json).toMatchObject({ code: 'policy_denied' });
    }
    expectProblem(await engine.call(request), status, code);
    await correct();
  }
  // When every check passes, the shipped policy denies the action, because it permits only the sandbox.
  expectProblem(await engine.call(request), 403, 'policy_denied');
});
