import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { documentHash, nobleSha256 } from '#protocol/hash';
import { executeReceiptSchema } from '#protocol/schemas/execute';
import { setLane } from '#sql/tenants/administration';
import { treeSize } from '#sql/log/log';
import {
  admitHttp,
  agentEnvelope,
  canonicalHash,
  executeIntentHttp,
  executeRequest,
  followAdmissionHttp,
  isDenial,
  SdkError,
} from '#sdk/index';
import { sdkError } from '../fixtures/sdk-error.js';
import { intent, openSdkWorld, type SdkWorld } from '../fixtures/sdk-world.js';

let world: SdkWorld;
beforeAll(async () => {
  // Answers 202 rather than wait for long.
  world = await openSdkWorld({ waitMs: 400 });
});
afterEach(() => {
  world.network.seen.length = 0;
  world.engine.worker.rests = false;
});
afterAll(() => world.close());

describe('executeIntentHttp', () => {
  it("returns the engine's receipt as it is", async () => {
    const input = { ...intent(), idempotency_key: 'mine ~1' };
    const receipt = await executeIntentHttp(world.shaky, input);
    expect(executeReceiptSchema.parse(receipt)).toEqual(receipt);
    const again = await world.engine.call({
      path: '/v1/intents/execute',
      headers: { ...headers(), 'Content-Type': 'application/json' },
      body: JSON.stringify(executeRequest('acme', input)),
    });
    expect(again.headers['idempotent-replayed']).toBe('true');
    expect(receipt).toEqual(again.json);
  });

  it('sends the canonical body, and its hash as the idempotency key', async () => {
    const input = intent();
    const { request_hash } = await executeIntentHttp(world.shaky, input);
    const [sent] = world.network.seen;
    expect(sent?.body).toBe(
      `{"action":"BOOK_RESERVATION","intent_id":"${input.intent_id}",` +
        '"schema_version":"svc.runtime.intent_execute.request/1.0","tenant_id":"acme"}',
    );
    expect(sent?.headers['x-svc-idempotency-key']).toBe(request_hash);
    expect(sent?.headers['svc-api-version']).toBe('v1');
    expect(request_hash).toBe(canonicalHash(executeRequest('acme', input)));
  });

  it('returns the first receipt for the same input, and appends nothing', async () => {
    const input = intent();
    const first = await executeIntentHttp(world.options, input);
    const size = await treeSize(world.db.sql);
    expect(await executeIntentHttp(world.options, input)).toEqual(first);
    expect(await treeSize(world.db.sql)).toBe(size);
  });

  it('throws a denial, with its receipt and what the policy says', async () => {
    const input = intent({ action: 'DELETE_AUDIT_LOG' });
    const error = await sdkError(executeIntentHttp(world.options, input), 'policy_denied');
    expect(isDenial(error)).toBe(true);
    expect(error.status).toBe(403);
    expect(error.retryable).toBe(false);
    expect(error.denial?.receipt).toMatchObject({
      status: 'DENIED',
      request_hash: documentHash(nobleSha256, { ...executeRequest('acme', input) }),
    });
    expect(error.denial?.reasons).not.toEqual([]);
    expect(Object.values(error.denial?.sentences ?? {}).join()).toBe(error.message);
    expect(error.problem).toMatchObject({ code: 'policy_denied', status: 403 });
  });

  it('is told that the lane is locked, or that the key is none, by a code', async () => {
    await setLane(world.registry.admin, 'sandbox', false);
    try {
      const locked = await sdkError(executeIntentHttp(world.options, intent()), 'lane_locked');
      expect(locked).toMatchObject({ status: 423, retryable: false });
    } finally {
      await setLane(world.registry.admin, 'sandbox', true);
    }
    const stranger = { ...world.options, apiKey: 'svc_sk_none' };
    await sdkError(executeIntentHttp(stranger, intent()), 'unauthenticated');
    const other = { ...world.options, tenantId: 'other' };
    const error = await sdkError(executeIntentHttp(other, intent()), 'forbidden');
    expect(error.problem?.code).toBe('tenant_mismatch');
    expect(error.problem?.request_id).toBeTypeOf('string');
  });

  it('refuses what is no request before anything is sent, and says where', async () => {
    const calls: [unknown, string][] = [
      [{ ...intent(), action: 'lower case' }, '/action'],
      [{ ...intent(), surplus: 1 }, '/surplus'],
      [{ action: 'A' }, '/intent_id'],
      [{ ...intent(), intent_id: 'half \ud800' }, '/intent_id'],
    ];
    for (const [input, pointer] of calls) {
      const call = executeIntentHttp(world.shaky, input as never);
      expect((await sdkError(call, 'invalid_input')).pointer).toBe(pointer);
    }
    expect(world.network.seen).toEqual([]);
  });

  it('names the field that the engine refuses', async () => {
    const input = { ...intent(), tenant_id: 'other' };
    const error = await sdkError(executeIntentHttp(world.options, input), 'forbidden');
    expect(error.problem?.errors?.[0]?.pointer).toBe('/tenant_id');
  });

  it('keeps the API key out of errors', async () => {
    const apiKey = 'svc_sk_secret with a space';
    const error = await sdkError(
      executeIntentHttp({ ...world.options, apiKey }, intent()),
      'invalid_input',
    );
    expect(`${error.message} ${error.stack ?? ''} ${JSON.stringify(error)}`).not.toContain(
      'secret',
    );
  });
});

describe('an admission that takes long', () => {
  it('is followed from its 202 to its receipt', async () => {
    const { worker } = world.engine;
    worker.rests = true;
    const input = intent();
    const call = executeIntentHttp(world.shaky, input);
    await expect.poll(() => world.network.seen.length).toBeGreaterThan(1);
    worker.rests = false;
    await worker.work();
    const receipt = await call;
    expect(receipt.request_hash).toBe(canonicalHash(executeRequest('acme', input)));
    const [post, ...asked] = world.network.seen.map(({ method, path }) => `${method} ${path}`);
    expect(post).toBe('POST /v1/intents/execute');
    expect(new Set(asked)).toEqual(new Set([`GET /v1/admissions/${receipt.registry_proof_id}`]));
  });

  it('is a denial when that is what becomes of it', async () => {
    const { worker } = world.engine;
    worker.rests = true;
    const call = executeIntentHttp(world.shaky, intent({ action: 'DELETE_AUDIT_LOG' }));
    call.catch(() => undefined);
    await expect.poll(() => world.network.seen.length).toBeGreaterThan(1);
    worker.rests = false;
    await worker.work();
    await sdkError(call, 'policy_denied');
  });

  it('can be followed later, when the time of the call was over', async () => {
    world.engine.worker.rests = true;
    const options = { ...world.options, timeoutMs: 2_000 };
    const error = await sdkError(executeIntentHttp(options, intent()), 'timeout');
    expect(error.proofId).toMatch(/^[0-9a-f]{32}$/);
    const proof = { proof_id: error.proofId ?? '' };
    const brief = { ...options, timeoutMs: 300 };
    expect((await sdkError(followAdmissionHttp(brief, proof), 'timeout')).proofId).toBe(
      proof.proof_id,
    );
    world.engine.worker.rests = false;
    await world.engine.worker.work();
    const receipt = await followAdmissionHttp(world.options, proof);
    expect(receipt.registry_proof_id).toBe(proof.proof_id);
  });

  it('is not taken for another one', async () => {
    world.engine.worker.rests = true;
    const options = { ...world.options, timeoutMs: 2_000 };
    const error = await sdkError(executeIntentHttp(options, intent()), 'timeout');
    const another = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
    const pending = { schema_version: 'svc.runtime.admission_status/1.0', state: 'pending' };
    world.network.faults.push({
      kind: 'answer',
      status: 202,
      headers: { 'Content-Type': 'application/json', Location: `/v1/admissions/${another}` },
      body: JSON.stringify({ ...pending, proof_id: another }),
    });
    const proof = { proof_id: error.proofId ?? '' };
    await sdkError(followAdmissionHttp(world.shaky, proof), 'unexpected_response');
    world.engine.worker.rests = false;
    await world.engine.worker.work();
    const other = await executeIntentHttp(world.options, intent());
    world.network.faults.push({
      kind: 'changed',
      change: () => JSON.stringify(other),
    });
    await sdkError(followAdmissionHttp(world.shaky, proof), 'unexpected_response');
  });

  it('is not followed where another id leads', async () => {
    const none = { proof_id: '0'.repeat(32) };
    await sdkError(followAdmissionHttp(world.options, none), 'invalid_input');
    const unknown = { proof_id: '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f' };
    const error = await sdkError(followAdmissionHttp(world.options, unknown), 'not_found');
    expect(error.problem?.code).toBe('admission_not_found');
  });
});

describe('admitHttp', () => {
  const agent = { id: 'agent-7', framework: 'none' };

  it('admits an action, and records its outcome, without a word of its arguments', async () => {
    const asked = await admitHttp(world.shaky, {
      kind: 'admission',
      agent,
      action: 'BOOK_RESERVATION',
      tool: 'reservations.create',
      arguments_hash: canonicalHash({ seats: 2, guest: 'Ada' }),
    });
    expect(asked).toMatchObject({ status: 'ADMITTED' });
    const done = await admitHttp(world.shaky, {
      kind: 'outcome',
      agent,
      parent_proof_id: asked.registry_proof_id,
      result: 'succeeded',
      result_hash: canonicalHash({ table: 4 }),
    });
    expect(done.receipt_id).toMatch(/^svc-agent-admission-/);
    const sent = world.network.seen.map(({ body }) => body).join();
    expect(sent).not.toContain('Ada');
    expect(world.network.seen[0]?.headers['x-svc-idempotency-key']).toBe(asked.request_hash);
  });

  it('admits each call anew, and an envelope that was kept only once', async () => {
    const input = { kind: 'admission', agent, action: 'SEND_REPORT' } as const;
    const kept = agentEnvelope('acme', input);
    const first = await admitHttp(world.options, kept);
    expect(await admitHttp(world.options, kept)).toEqual(first);
    const anew = await admitHttp(world.options, input);
    expect(anew.registry_proof_id).not.toBe(first.registry_proof_id);
  });

  it('throws a denial, and an outcome of what was not admitted', async () => {
    const input = { kind: 'admission', agent, action: 'DELETE_AUDIT_LOG' } as const;
    const error = await sdkError(admitHttp(world.options, input), 'policy_denied');
    const parent = error.denial?.receipt.registry_proof_id ?? '';
    const outcome = { kind: 'outcome', agent, parent_proof_id: parent, result: 'failed' } as const;
    const refused = await sdkError(admitHttp(world.options, outcome), 'invalid_request');
    expect(refused).toMatchObject({ status: 422, problem: { code: 'parent_not_admitted' } });
  });
});

describe('options', () => {
  it('are refused before anything is sent', async () => {
    const wrong = [
      { engineUrl: 'not a url' },
      { engineUrl: 'ftp://127.0.0.1/' },
      { engineUrl: 'http://user:password@127.0.0.1/' },
      { engineUrl: 'http://127.0.0.1/?a=b' },
      { apiKey: '' },
      { tenantId: 'line\nbreak' },
      { timeoutMs: 0 },
      { timeoutMs: Number.NaN },
    ];
    for (const one of wrong) {
      await sdkError(executeIntentHttp({ ...world.shaky, ...one }, intent()), 'invalid_input');
    }
    expect(world.network.seen).toEqual([]);
  });

  it('may put a path in front', async () => {
    const engineUrl = `${world.network.url}/gateway`;
    const error: unknown = await executeIntentHttp({ ...world.shaky, engineUrl }, intent()).catch(
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(SdkError);
    expect(world.network.seen[0]?.path).toBe('/gateway/v1/intents/execute');
  });
});

function headers(): Record<string, string> {
  return { 'X-Svc-Api-Key': world.options.apiKey, 'X-Svc-Tenant-Id': 'acme' };
}
