import { describe, expect } from 'vitest';
import { documentHash, nobleSha256 } from '#protocol/hash';
import { executeReceiptSchema } from '#protocol/schemas/admission';
import {
  admitHttp,
  agentEnvelope,
  canonicalHash,
  executeIntentHttp,
  executeRequest,
  followAdmissionHttp,
  isDenial,
  isReplayed,
} from '#sdk/index';
import { fakeEngine } from '#sdk/testing';
import { headersFor } from '../fixtures/engine.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { intent, sdkTest } from '../fixtures/sdk-world.js';

/** Options for an engine that answers 202 after a short wait. */
const it = sdkTest({ waitMs: 400 });

const UNKNOWN = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';

describe('executeIntentHttp', () => {
  it("returns the engine's receipt unchanged", async ({ world }) => {
    const input = { ...intent(), idempotency_key: 'mine ~1' };
    const receipt = await executeIntentHttp(world.shaky, input);
    expect(executeReceiptSchema.parse(receipt)).toEqual(receipt);
    const again = await world.engine.call({
      path: '/v1/intents/execute',
      headers: { ...headersFor(world.options.apiKey), 'Content-Type': 'application/json' },
      body: JSON.stringify(executeRequest('acme', input)),
    });
    expect(again.headers['idempotent-replayed']).toBe('true');
    expect(receipt).toEqual(again.json);
  });

  it('reports whether the engine had accepted the request before', async ({ world }) => {
    const [admitted, denied] = [intent(), intent({ action: 'DELETE_AUDIT_LOG' })];
    const receipts = async () => [
      await executeIntentHttp(world.options, admitted),
      (await sdkError(executeIntentHttp(world.options, denied), 'policy_denied')).denial!.receipt,
    ];
    expect((await receipts()).map(isReplayed)).toEqual([false, false]);
    expect((await receipts()).map(isReplayed)).toEqual([true, true]);
  });

  it("throws a denial with its receipt and the policy's reason texts", async ({ world }) => {
    const input = intent({ action: 'DELETE_AUDIT_LOG' });
    const error = await sdkError(executeIntentHttp(world.options, input), 'policy_denied');
    expect(isDenial(error)).toBe(true);
    expect(error).toMatchObject({ status: 403, retryable: false });
    expect(error.denial?.receipt).toMatchObject({
      status: 'DENIED',
      request_hash: documentHash(nobleSha256, { ...executeRequest('acme', input) }),
    });
    expect(error.denial?.reasons).not.toEqual([]);
    expect(Object.values(error.denial?.sentences ?? {}).join()).toBe(error.message);
    expect(error.problem).toMatchObject({ code: 'policy_denied', status: 403 });
  });

  it('rejects invalid input with a JSON pointer before it sends a request', async ({ world }) => {
    const cases: [unknown, string][] = [
      [{ ...intent(), action: 'lower case' }, '/action'],
      [{ ...intent(), surplus: 1 }, '/surplus'],
      [{ action: 'A' }, '/intent_id'],
      [{ ...intent(), intent_id: 'half \ud800' }, '/intent_id'],
    ];
    for (const [input, pointer] of cases) {
      const call = executeIntentHttp(world.shaky, input as never);
      expect((await sdkError(call, 'invalid_input')).pointer).toBe(pointer);
    }
    expect(world.network.seen).toEqual([]);
  });

  it('rejects invalid options before it sends a request', async ({ world }) => {
    for (const invalid of [
      { engineUrl: 'not a url' },
      { engineUrl: 'ftp://127.0.0.1/' },
      { engineUrl: 'http://user:password@127.0.0.1/' },
      { engineUrl: 'http://127.0.0.1/?a=b' },
      { apiKey: '' },
      { tenantId: 'line\nbreak' },
      { timeoutMs: 0 },
      { timeoutMs: Number.NaN },
    ]) {
      const call = executeIntentHttp({ ...world.shaky, ...invalid }, intent());
      await sdkError(call, 'invalid_input');
    }
    expect(world.network.seen).toEqual([]);
  });

  it('omits the API key from errors', async ({ world }) => {
    const apiKey = 'svc_sk_secret with a space';
    const call = executeIntentHttp({ ...world.options, apiKey }, intent());
    const error = await sdkError(call, 'invalid_input');
    const text = `${error.message} ${error.stack ?? ''} ${JSON.stringify(error)}`;
    expect(text).not.toContain('secret');
  });
});

describe('pending admission', () => {
  it('is polled until it has a receipt', async ({ world }) => {
    const { worker } = world.engine;
    worker.isPaused = true;
    const input = intent();
    const call = executeIntentHttp(world.shaky, input);
    await expect.poll(() => world.network.seen.length).toBeGreaterThan(1);
    worker.isPaused = false;
    await worker.work();
    const receipt = await call;
    expect(receipt.request_hash).toBe(canonicalHash(executeRequest('acme', input)));
    const [post, ...polls] = world.network.seen.map(({ method, path }) => `${method} ${path}`);
    expect(post).toBe('POST /v1/intents/execute');
    expect(new Set(polls)).toEqual(new Set([`GET /v1/admissions/${receipt.registry_proof_id}`]));
  });

  it('can be followed after a timeout, and returns no receipt but its own', async ({ world }) => {
    const { worker } = world.engine;
    worker.isPaused = true;
    const brief = { ...world.options, timeoutMs: 2_000 };
    const { proofId = '' } = await sdkError(executeIntentHttp(brief, intent()), 'timeout');
    expect(proofId).toMatch(/^[0-9a-f]{32}$/);
    const proof = { proof_id: proofId };
    const again = followAdmissionHttp({ ...brief, timeoutMs: 300 }, proof);
    expect((await sdkError(again, 'timeout')).proofId).toBe(proofId);
    const schema_version = 'svc.runtime.admission_status/1.0';
    world.network.faults.push({
      kind: 'answer',
      status: 202,
      headers: { 'Content-Type': 'application/json', Location: `/v1/admissions/${UNKNOWN}` },
      body: JSON.stringify({ schema_version, state: 'pending', proof_id: UNKNOWN }),
    });
    await sdkError(followAdmissionHttp(world.shaky, proof), 'unexpected_response');
    worker.isPaused = false;
    await worker.work();
    const other = await executeIntentHttp(world.options, intent());
    world.network.faults.push({ kind: 'changed', change: () => JSON.stringify(other) });
    await sdkError(followAdmissionHttp(world.shaky, proof), 'unexpected_response');
    const receipt = await followAdmissionHttp(world.options, proof);
    expect(receipt.registry_proof_id).toBe(proofId);
  });
});

it('the error of a failed poll names the accepted admission', async () => {
  const schema_version = 'svc.runtime.admission_status/1.0';
  const pending = { schema_version, proof_id: UNKNOWN, state: 'pending' };
  for (const [status, code] of [
    [500, 'engine_failed'],
    [404, 'unexpected_response'],
  ] as const) {
    const options = {
      engineUrl: 'http://engine.example',
      apiKey: 'key',
      tenantId: 'acme',
      fetch: (_: unknown, { method }: RequestInit = {}) =>
        Promise.resolve(
          method === 'POST'
            ? Response.json(pending, { status: 202, headers: { 'Retry-After': '0' } })
            : new Response(null, { status }),
        ),
    };
    const error = await sdkError(executeIntentHttp(options, intent()), code);
    expect(error.proofId).toBe(UNKNOWN);
  }
});

describe('admitHttp', () => {
  const agent = { id: 'agent-7', framework: 'none' };

  it('admits an input again on each call, but the same prepared envelope only once', async ({
    world,
  }) => {
    const input = { kind: 'admission', agent, action: 'SEND_REPORT' } as const;
    const kept = agentEnvelope('acme', input);
    const first = await admitHttp(world.options, kept);
    expect(await admitHttp(world.options, kept)).toEqual(first);
    const second = await admitHttp(world.options, input);
    expect(second.registry_proof_id).not.toBe(first.registry_proof_id);
  });

  it('sends the facts of an admission, after a check of their form', () => {
    const input = { kind: 'admission', agent, action: 'ISSUE_REFUND' } as const;
    const facts = { amount: { decimal: '480.00' }, currency: 'EUR', tags: ['a', 'b'] };
    expect(agentEnvelope('acme', { ...input, facts })).toMatchObject({ facts });
    const wrong = { ...facts, amount: { decimal: '4.00001' } };
    expect(() => agentEnvelope('acme', { ...input, facts: wrong })).toThrow('/facts/amount');
  });

  it('rejects an optional member that is set to undefined, and does not report it as required', () => {
    const input = { kind: 'admission', agent, action: 'A', tool: undefined as never } as const;
    expect(() => agentEnvelope('acme', input)).toThrow('/tool: is set to undefined');
  });
});

it('the fake engine answers with the hashes of a real engine', async ({ world }) => {
  const engine = fakeEngine();
  const input = intent();
  const options = { ...engine.options, tenantId: world.options.tenantId };
  const fake = await executeIntentHttp(options, input);
  expect(await executeIntentHttp(options, input)).toEqual(fake);
  expect(engine.requests).toHaveLength(1);
  const receipt = await executeIntentHttp(world.options, input);
  expect({ ...fake, registry_proof_id: '', response_hash: '' }).toEqual({
    ...receipt,
    registry_proof_id: '',
    response_hash: '',
  });
});

it('the fake engine denies, requires approvals and fails as the test decides', async () => {
  const engine = fakeEngine(({ action }) =>
    action === 'PAY' ? { effect: 'DENY', reason: 'limit' } : 'REQUIRE_APPROVAL',
  );
  const agent = { id: 'agent-7' };
  const admit = (action: string) => admitHttp(engine.options, { kind: 'admission', agent, action });
  const denial = await sdkError(admit('PAY'), 'policy_denied');
  expect(denial.denial?.reasons).toEqual(['limit']);
  const { approval } = await sdkError(admit('REFUND'), 'approval_required');
  expect(approval?.reasons).toEqual(['fake-rule']);
  const { fetch, engineUrl } = engine.options;
  const body = Buffer.from('{"intent_id":""}');
  const answer = await fetch!(`${engineUrl}/v1/intents/execute`, { method: 'POST', body });
  expect(await answer.json()).toMatchObject({
    code: 'missing_field',
    errors: expect.arrayContaining([
      { pointer: '/intent_id', detail: 'expected 1 to 512 characters' },
    ]) as object[],
  });
  const other = Buffer.from('{"schema_version":"other"}');
  const refused = await fetch!(`${engineUrl}/v1/agent/admissions`, { method: 'POST', body: other });
  expect(await refused.json()).toMatchObject({ code: 'unsupported_schema_version' });
  engine.unavailable = true;
  const options = { ...engine.options, retry: { attempts: 1 } };
  await sdkError(executeIntentHttp(options, intent()), 'unavailable');
  engine.unavailable = false;
  const proof_id = denial.denial!.receipt.registry_proof_id;
  await sdkError(followAdmissionHttp(engine.options, { proof_id }), 'not_found');
});
