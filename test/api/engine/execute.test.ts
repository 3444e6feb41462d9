import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { formatApiKey } from '#protocol/api-key';
import { canonicalize } from '#protocol/canonical-json';
import { nobleSha256, hashHex } from '#protocol/hash';
import { utf8 } from '#protocol/bytes';
import { executeReceiptSchema } from '#protocol/schemas/index';
import type { JsonValue } from '#protocol/json';
import { createTenant, revokeApiKey, setAllowlisted, setLane } from '#sql/tenants/administration';
import { treeSize } from '#sql/log/log';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  type Reply,
  type TestEngine,
  without,
} from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { openRegistry, TENANT, type TestRegistry } from '../../fixtures/registry.js';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let key: string;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  engine = await startEngine(registry);
  key = await issueKey(registry);
});
afterEach(async () => {
  engine.worker.rests = false;
  engine.worker.fails = null;
  await engine.worker.work();
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});

function execute(
  body: Record<string, unknown> | string = executeBody(),
  headers: Record<string, string | string[]> = {},
): Promise<Reply> {
  return engine.call({
    headers: { ...headersFor(key), ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

describe('admitted execution', () => {
  it('gets 200 with the seven fields of the receipt', async () => {
    const body = executeBody({ idempotency_key: 'opaque token ~1' });
    const reply = await execute(body, { 'svc-api-version': 'v1' });
    expect(reply.status).toBe(200);
    expect(reply.headers['content-type']).toBe('application/json');
    expect(reply.headers['x-svc-idempotency-key']).toBe('opaque token ~1');
    expect(reply.headers['idempotent-replayed']).toBeUndefined();
    const receipt = executeReceiptSchema.parse(reply.json);
    const requestHash = hashHex(nobleSha256, utf8(canonicalize(body as JsonValue)));
    const { response_hash, ...rest } = receipt;
    expect(receipt).toMatchObject({
      status: 'ADMITTED',
      request_hash: requestHash,
      receipt_id: `svc-runtime-execute-${requestHash.slice(0, 16)}`,
    });
    expect(response_hash).toBe(hashHex(nobleSha256, utf8(canonicalize(rest))));
  });

  it('has the hash of the canonical body for any formatting', async () => {
    const body = executeBody();
    const spaced = JSON.stringify(Object.fromEntries(Object.entries(body).reverse()), null, 2);
    const first = await execute(spaced);
    const again = await execute(body);
    expect(again.bytes).toEqual(first.bytes);
    expect(again.headers['idempotent-replayed']).toBe('true');
  });

  it('gets the common response headers', async () => {
    const reply = await execute(executeBody(), { 'X-Request-Id': 'trace-1' });
    expect(reply.headers).toMatchObject({
      'x-request-id': 'trace-1',
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
      'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
    });
    expect(reply.headers['x-powered-by']).toBeUndefined();
    const unsafe = await execute(executeBody(), { 'X-Request-Id': 'a b\u00ff"' });
    expect(unsafe.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
  });
});

describe('denied execution', () => {
  it('gets 403 with the receipt, the policies and their sentences', async () => {
    const body = executeBody({ action: 'DELETE_AUDIT_LOG', idempotency_key: 'mine' });
    const reply = await execute(body);
    expectProblem(reply, 403, 'policy_denied');
    expect(reply.json['reasons']).toEqual(['audit-log-is-kept']);
    const sentence = (reply.json['sentences'] as Record<string, string>)['audit-log-is-kept'];
    expect(sentence).toContain('DELETE_AUDIT_LOG');
    expect(reply.json['detail']).toBe(sentence);
    expect(reply.headers['x-svc-idempotency-key']).toBe('mine');
    expect(executeReceiptSchema.parse(reply.json['receipt']).status).toBe('DENIED');

    const again = await execute(body);
    expectProblem(again, 403, 'policy_denied');
    expect(again.headers['idempotent-replayed']).toBe('true');
    expect(again.json['receipt']).toEqual(reply.json['receipt']);
  });
});

describe('invalid API key', () => {
  it('gets the same 401 for every fault', async () => {
    const revoked = await issueKey(registry);
    await revokeApiKey(registry.admin, revoked.slice(7, 19));
    const expired = await issueKey(registry, { expiresAt: Date.now() - 1 });
    const other = await issueKey(registry);
    const wrongSecret = key.slice(0, 20) + other.slice(20);
    const bad = {
      missing: undefined,
      empty: '',
      malformed: 'svc_sk_nonsense',
      unknown: `svc_sk_zzzzzzzzzzzz${other.slice(19)}`,
      unknownWhole: formatApiKey({ keyId: 'zzzzzzzzzzzz', secret: randomBytes(32) }),
      wrongSecret,
      wrongSecretWhole: formatApiKey({ keyId: key.slice(7, 19), secret: randomBytes(32) }),
      revoked,
      expired,
      twice: `${key}, ${key}`,
    };
    const answers = new Set<string>();
    for (const value of Object.values(bad)) {
      const rest = without(headersFor(key), 'X-Svc-Api-Key');
      const headers = { ...rest, 'X-Request-Id': 'same' };
      const reply = await engine.call({
        headers: value === undefined ? headers : { ...headers, 'X-Svc-Api-Key': value },
        body: JSON.stringify(executeBody()),
      });
      expectProblem(reply, 401, 'unauthenticated');
      answers.add(JSON.stringify([without(reply.headers, 'date'), reply.bytes.toString()]));
    }
    expect(answers.size).toBe(1);
  });

  it('gets 401 when only the key id is right', async () => {
    // Valid id and checksum, but another secret.
    const forged = formatApiKey({ keyId: key.slice(7, 19), secret: new Uint8Array(32).fill(7) });
    expectProblem(
      await execute(executeBody(), { 'X-Svc-Api-Key': forged }),
      401,
      'unauthenticated',
    );
  });

  it('gets 401 as soon as it is revoked', async () => {
    const shortLived = await issueKey(registry);
    const headers = { 'X-Svc-Api-Key': shortLived };
    expect((await execute(executeBody(), headers)).status).toBe(200);
    await revokeApiKey(registry.admin, shortLived.slice(7, 19));
    expectProblem(await execute(executeBody(), headers), 401, 'unauthenticated');
  });
});

describe('execution checks', () => {
  it('run in the documented order', async () => {
    const tenant = 'walker';
    await createTenant(registry.admin, { tenantId: tenant, environment: 'live' });
    const walker = await issueKey(registry, { tenantId: tenant, scopes: ['read'] });
    const keyId = walker.slice(7, 19);
    const bound = executeBody({ tenant_id: tenant });
    const request = {
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
    const walk: [number, string, () => unknown][] = [
      [401, 'unauthenticated', () => (headers['X-Svc-Api-Key'] = walker)],
      [423, 'lane_locked', () => setLane(registry.admin, 'live', true)],
      [403, 'tenant_mismatch', () => delete headers['X-Svc-Tenant-Id']],
      [403, 'tenant_header_missing', () => (headers['X-Svc-Tenant-Id'] = tenant)],
      [
        403,
        'scope_missing',
        () => db.sql`update svc.api_key set scopes = '{admit}' where key_id = ${keyId}`,
      ],
      [403, 'tenant_not_allowlisted', () => setAllowlisted(registry.admin, tenant, true)],
      [415, 'unsupported_media_type', () => (headers['Content-Type'] = 'application/json')],
      [413, 'body_too_large', () => (request.body = '{"tenant_id":1')],
      [406, 'not_acceptable', () => (headers['Accept'] = 'application/json')],
      [400, 'unsupported_api_version', () => (headers['svc-api-version'] = 'v1')],
      [400, 'invalid_idempotency_key', () => (headers['X-Svc-Idempotency-Key'] = 'bound')],
      [400, 'malformed_json', () => (request.body = '{"schema_version":"0"}')],
      [400, 'unsupported_schema_version', () => (request.body = JSON.stringify(executeBody()))],
      [
        403,
        'tenant_body_mismatch',
        () => (request.body = JSON.stringify(executeBody({ tenant_id: tenant }))),
      ],
      [422, 'idempotency_conflict', () => (request.body = JSON.stringify(bound))],
    ];
    // The idempotency key is bound to another body by a request of its own at the right moment.
    for (const [status, code, mend] of walk) {
      if (code === 'idempotency_conflict') {
        const first = await engine.call({ headers, body: JSON.stringify(bound) });
        expect(first.json).toMatchObject({ code: 'policy_denied' });
      }
      expectProblem(await engine.call(request), status, code);
      await mend();
    }
    // All checks pass here; the shipped policy permits only the sandbox.
    expectProblem(await engine.call(request), 403, 'policy_denied');
    await setLane(registry.admin, 'live', false);
  });

  it('reject everything when ADMISSIONS_PAUSED is set', async () => {
    const locked = await startEngine(registry, { admissionsPaused: true });
    const reply = await locked.call({ headers: headersFor(key), body: '{}' });
    expectProblem(reply, 423, 'lane_locked');
    await locked.close();
  });

  it('reject new and waiting executions when the environment is locked', async () => {
    engine.worker.rests = true;
    const waiting = execute();
    await expect.poll(() => engine.worker.jobs.length).toBe(1);
    await setLane(registry.admin, 'sandbox', false);
    try {
      expectProblem(await execute(), 423, 'lane_locked');
      await engine.worker.work();
      expectProblem(await waiting, 423, 'lane_locked');
    } finally {
      engine.worker.rests = false;
      await setLane(registry.admin, 'sandbox', true);
    }
  });

  it('reject waiting executions when the tenant leaves the allowlist', async () => {
    engine.worker.rests = true;
    const body = executeBody();
    const waiting = execute(body);
    await expect.poll(() => engine.worker.jobs.length).toBe(1);
    await setAllowlisted(registry.admin, TENANT, false);
    try {
      await engine.worker.work();
      expectProblem(await waiting, 403, 'tenant_not_allowlisted');
      expectProblem(await execute(), 403, 'tenant_not_allowlisted');
    } finally {
      engine.worker.rests = false;
      await setAllowlisted(registry.admin, TENANT, true);
    }
    // What was refused has no proof, so the same body may be admitted now.
    expect((await execute(body)).status).toBe(200);
  });
});

describe('request headers', () => {
  it('are rejected when repeated', async () => {
    const twice = { 'X-Svc-Idempotency-Key': ['a', 'b'] };
    expectProblem(await execute(executeBody(), twice), 400, 'duplicate_header');
  });

  it('bind an idempotency key to one body of the tenant', async () => {
    const body = executeBody();
    const headers = { 'X-Svc-Idempotency-Key': 'k-1' };
    const first = await execute(body, headers);
    const again = await execute(body, headers);
    expect(again.bytes).toEqual(first.bytes);
    expect(again.headers['idempotent-replayed']).toBe('true');
    expectProblem(await execute(executeBody(), headers), 422, 'idempotency_conflict');
    // Not derived, and not echoed: only the body's own token is.
    expect(first.headers['x-svc-idempotency-key']).toBeUndefined();
  });

  it.each(['', 'x'.repeat(256), 'tab\there'])('reject the idempotency key %j', async (value) => {
    const reply = await execute(executeBody(), { 'X-Svc-Idempotency-Key': value });
    expectProblem(reply, 400, 'invalid_idempotency_key');
  });

  it.each([
    ['text/plain', 'unsupported_media_type'],
    ['application/json; charset=latin1', 'unsupported_media_type'],
    ['application/jsonx', 'unsupported_media_type'],
  ])('refuse the content type %s', async (type, code) => {
    expectProblem(await execute(executeBody(), { 'Content-Type': type }), 415, code);
  });

  it('reject an encoded body and name the supported encoding', async () => {
    const reply = await execute(executeBody(), { 'Content-Encoding': 'gzip' });
    expectProblem(reply, 415, 'unsupported_content_encoding');
    expect(reply.headers['accept-encoding']).toBe('identity');
  });

  it('accept JSON with a charset parameter', async () => {
    const type = 'Application/JSON; charset="UTF-8"';
    expect((await execute(executeBody(), { 'Content-Type': type })).status).toBe(200);
  });
});

describe('idempotency', () => {
  it('creates one proof for twenty concurrent equal requests', async () => {
    const before = await treeSize(registry.engine);
    const body = executeBody();
    const replies = await Promise.all(Array.from({ length: 20 }, () => execute(body)));
    expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([200]));
    expect(new Set(replies.map(({ bytes }) => bytes.toString())).size).toBe(1);
    const firsts = replies.filter(({ headers }) => headers['idempotent-replayed'] === undefined);
    expect(firsts).toHaveLength(1);
    expect(await treeSize(registry.engine)).toBe(before + 1);
  });
});
