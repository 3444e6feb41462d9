import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { canonicalize } from '#protocol/canonical-json';
import { utf8 } from '#protocol/bytes';
import { hashHex, nobleSha256 } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { agentReceiptSchema } from '#protocol/schemas/index';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/package-root';
import { createTenant, setAllowlisted } from '#sql/tenants/administration';
import { treeSize } from '#sql/log/log';
import { activatePolicy, activePolicy, storePolicySet } from '#sql/admissions/policies';
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
import { openRegistry, type TestRegistry } from '../../fixtures/registry.js';

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

async function proved(body = admissionEnvelope()): Promise<string> {
  const reply = await admit(body);
  expect(reply.status).toBe(200);
  return String(reply.json['registry_proof_id']);
}

async function executed(fields: Record<string, unknown> = {}): Promise<string> {
  const reply = await engine.call({
    headers: headersFor(key),
    body: JSON.stringify(executeBody(fields)),
  });
  const receipt = (reply.json['receipt'] ?? reply.json) as Record<string, unknown>;
  return String(receipt['registry_proof_id']);
}

describe('admitted agent action', () => {
  it('gets 200 with an agent receipt', async () => {
    const body = admissionEnvelope({ idempotency_key: 'opaque ~1' });
    const reply = await admit(body, { 'svc-api-version': 'v1' });
    expect(reply.status).toBe(200);
    expect(reply.headers['content-type']).toBe('application/json');
    expect(reply.headers['x-svc-idempotency-key']).toBe('opaque ~1');
    expect(reply.headers['idempotent-replayed']).toBeUndefined();
    const receipt = agentReceiptSchema.parse(reply.json);
    const requestHash = hashHex(nobleSha256, utf8(canonicalize(body as JsonValue)));
    const { response_hash, ...rest } = receipt;
    expect(receipt).toMatchObject({
      status: 'ADMITTED',
      request_hash: requestHash,
      receipt_id: `svc-agent-admission-${requestHash.slice(0, 16)}`,
    });
    expect(response_hash).toBe(hashHex(nobleSha256, utf8(canonicalize(rest))));
    expect(reply.bytes.toString()).toBe(canonicalize(receipt));
  });

  it('records the envelope in the AEP, with only the hash of the arguments', async () => {
    const parent = await proved();
    const body = admissionEnvelope({ parent_proof_id: parent });
    const proofId = await proved(body);
    const read = await engine.call({
      method: 'GET',
      path: `/v1/proofs/${proofId}`,
      headers: without(headersFor(key), 'Content-Type'),
    });
    const aep = read.json['aep'] as Record<string, unknown>;
    expect(aep['subject']).toEqual({
      kind: 'admission',
      agent: body['agent'],
      action: body['action'],
      tool: body['tool'],
      arguments_hash: body['arguments_hash'],
      parent_proof_id: parent,
    });
    expect(aep['evidence']).toEqual({ fixture_ref: null, fixture_hash: null });
  });

  it('gets the first receipt, byte for byte, when sent again', async () => {
    const body = admissionEnvelope();
    const before = await treeSize(registry.engine);
    const replies = await Promise.all(Array.from({ length: 8 }, () => admit(body)));
    const spaced = JSON.stringify(Object.fromEntries(Object.entries(body).reverse()), null, 2);
    replies.push(await admit(spaced));
    expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([200]));
    expect(new Set(replies.map(({ bytes }) => bytes.toString())).size).toBe(1);
    expect(replies.at(-1)!.headers['idempotent-replayed']).toBe('true');
    expect(replies.filter(({ headers }) => !('idempotent-replayed' in headers))).toHaveLength(1);
    expect(await treeSize(registry.engine)).toBe(before + 1);
  });

  it('is accepted at maximum field lengths in any escaping', async () => {
    const emoji = '\u{1f600}'.repeat(512);
    const longest = admissionEnvelope({
      agent: { id: emoji, framework: emoji },
      tool: emoji,
      action: 'A'.repeat(128),
      nonce: 'n'.repeat(128),
      idempotency_key: '~'.repeat(255),
      parent_proof_id: await proved(),
    });
    const escaped = JSON.stringify(longest).replaceAll(
      /[^"{}:,[\]]/g,
      (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
    );
    expect(JSON.parse(escaped)).toEqual(longest);
    expect((await admit(escaped)).status).toBe(200);
  });

  it('is another admission when the nonce differs', async () => {
    const body = admissionEnvelope();
    const first = await proved(body);
    expect(await proved({ ...body, nonce: 'another-nonce-0123456789' })).not.toBe(first);
  });

  it('gets 202 when it is slow, and the same receipt later', async () => {
    const shortWait = await startEngine(registry, { waitMs: 100 });
    shortWait.worker.rests = true;
    const body = JSON.stringify(admissionEnvelope());
    const headers = headersFor(key);
    const reply = await shortWait.call({ path: '/v1/agent/admissions', headers, body });
    expect(reply.status).toBe(202);
    await shortWait.worker.work();
    const done = await shortWait.call({
      method: 'GET',
      path: String(reply.headers.location),
      headers: without(headers, 'Content-Type'),
    });
    expect(done.status).toBe(200);
    agentReceiptSchema.parse(done.json);
    const again = await shortWait.call({ path: '/v1/agent/admissions', headers, body });
    expect(again.bytes).toEqual(done.bytes);
    await shortWait.close();
  });
});

describe('denied agent action', () => {
  it('gets 403 with its receipt, also when sent again', async () => {
    const body = admissionEnvelope({ action: 'DELETE_AUDIT_LOG' });
    const reply = await admit(body);
    expectProblem(reply, 403, 'policy_denied');
    expect(reply.json['reasons']).toEqual(['audit-log-is-kept']);
    expect(agentReceiptSchema.parse(reply.json['receipt']).status).toBe('DENIED');
    const again = await admit(body);
    expect(again.json['receipt']).toEqual(reply.json['receipt']);
    expect(again.headers['idempotent-replayed']).toBe('true');
  });
});

describe('idempotency key of an agent admission', () => {
  it('is enforced only among agent admissions', async () => {
    const headers = { 'X-Svc-Idempotency-Key': 'lane-key' };
    const body = admissionEnvelope();
    const first = await admit(body, headers);
    expect(first.status).toBe(200);
    expect((await admit(body, headers)).bytes).toEqual(first.bytes);
    expectProblem(await admit(admissionEnvelope(), headers), 422, 'idempotency_conflict');
    // Idempotency keys are scoped by request type.
    const execute = (fields = executeBody()) =>
      engine.call({ headers: { ...headersFor(key), ...headers }, body: JSON.stringify(fields) });
    expect((await execute()).status).toBe(200);
    expectProblem(await execute(), 422, 'idempotency_conflict');
  });
});

describe('outcome envelope', () => {
  it('is linked to an admitted action of either request type', async () => {
    for (const parent of [await proved(), await executed()]) {
      const body = outcomeEnvelope(parent, { result: 'failed', result_hash: 'a'.repeat(64) });
      const proofId = await proved(body);
      const read = await engine.call({
        method: 'GET',
        path: `/v1/proofs/${proofId}`,
        headers: without(headersFor(key), 'Content-Type'),
      });
      expect((read.json['aep'] as Record<string, unknown>)['subject']).toEqual({
        kind: 'outcome',
        parent_proof_id: parent,
        result: 'failed',
        result_hash: 'a'.repeat(64),
      });
    }
  });

  it('is recorded under a policy that admits only one tool', async () => {
    const tool = 'search';
    const parent = await proved(admissionEnvelope({ tool }));
    const before = await activePolicy(registry.admin);
    const shipped = await readPolicyFolder(join(packageRoot, 'policy', 'default'));
    const set = await makePolicySet({
      ...shipped,
      policies: {
        ...shipped.policies,
        'search-only': `forbid (principal, action, resource)
          unless { context has tool && context.tool == "${tool}" };`,
      },
    });
    await storePolicySet(registry.admin, set);
    await activatePolicy(registry.admin, set.digest);
    try {
      expect((await admit(admissionEnvelope({ tool: 'shell' }))).status).toBe(403);
      await proved(outcomeEnvelope(parent, { result: 'failed' }));
    } finally {
      await activatePolicy(registry.admin, before!);
    }
  });

  it('gets 422 when the parent does not exist', async () => {
    const reply = await admit(outcomeEnvelope('019aa2c1e07b7c0f8a3e5d6b7c8d9e0f'));
    expectProblem(reply, 422, 'parent_not_found');
    expect(reply.json['errors']).toMatchObject([{ pointer: '/parent_proof_id' }]);
  });

  it('gets the same 422 when the parent belongs to another tenant', async () => {
    const parent = await proved();
    await createTenant(registry.admin, { tenantId: 'rival', environment: 'sandbox' });
    await setAllowlisted(registry.admin, 'rival', true);
    const headers = headersFor(await issueKey(registry, { tenantId: 'rival' }), 'rival');
    for (const body of [outcomeEnvelope(parent), admissionEnvelope({ parent_proof_id: parent })]) {
      const reply = await admit({ ...body, tenant_id: 'rival' }, headers);
      expectProblem(reply, 422, 'parent_not_found');
    }
  });

  it('gets 422 when the parent is a denial of either request type', async () => {
    const denial = await admit(admissionEnvelope({ action: 'DELETE_AUDIT_LOG' }));
    const { registry_proof_id: parent } = agentReceiptSchema.parse(denial.json['receipt']);
    expectProblem(await admit(outcomeEnvelope(parent)), 422, 'parent_not_admitted');
    const other = await executed({ action: 'DELETE_AUDIT_LOG' });
    expectProblem(await admit(outcomeEnvelope(other)), 422, 'parent_not_admitted');
  });

  it('gets 422 when the parent is an outcome', async () => {
    const outcome = await proved(outcomeEnvelope(await proved()));
    expectProblem(await admit(outcomeEnvelope(outcome)), 422, 'parent_not_admitted');
    // An admission may follow from anything that happened.
    await proved(admissionEnvelope({ parent_proof_id: outcome }));
  });

  it('gets 422 until the parent is decided', async () => {
    engine.worker.rests = true;
    const waiting = admit(admissionEnvelope());
    await expect.poll(() => engine.worker.jobs.length).toBe(1);
    const [[parent = ''] = []] = engine.worker.jobs;
    const outcome = outcomeEnvelope(parent);
    expectProblem(await admit(outcome), 422, 'parent_not_found');
    await engine.worker.work();
    engine.worker.rests = false;
    expect((await waiting).status).toBe(200);
    expect((await admit(outcome)).status).toBe(200);
  });

  it('leaves no rows when it is rejected', async () => {
    const body = outcomeEnvelope('019aa2c1e07b7c0f8a3e5d6b7c8d9e0f');
    const before = await treeSize(registry.engine);
    await admit(body, { 'X-Svc-Idempotency-Key': 'unused' });
    expect(await treeSize(registry.engine)).toBe(before);
    expect((await admit(admissionEnvelope(), { 'X-Svc-Idempotency-Key': 'unused' })).status).toBe(
      200,
    );
  });
});

describe('agent admission with a parent', () => {
  it('gets 422 when the parent does not exist', async () => {
    const body = admissionEnvelope({ parent_proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f' });
    expectProblem(await admit(body), 422, 'parent_not_found');
  });

  it('is accepted when the parent is a denial', async () => {
    const denied = await executed({ action: 'DELETE_AUDIT_LOG' });
    await proved(admissionEnvelope({ parent_proof_id: denied }));
  });
});
