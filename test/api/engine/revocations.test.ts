import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect } from 'vitest';
import { parseRevocationReason } from '#protocol/revocation-reason';
import { problemSchema } from '#protocol/schemas/problem';
import { revocationSchema, revocationStatusSchema } from '#protocol/schemas/lifecycle';
import { nativeSha256 } from '#runtime/crypto/node';
import { revokeApiKey, setAllowlisted, setLane } from '#sql/tenants/administration';
import { appendRevocation } from '#sql/lifecycle/entries';
import { treeSize } from '#sql/log/log';
import { agentItem, outcomeEnvelope } from '../../fixtures/agent.js';
import type { TestDatabase } from '../../fixtures/database.js';
import type { Reply, TestEngine } from '../../fixtures/engine.js';
import { clientOf, revocationBody, type Client } from '../../fixtures/lifecycle.js';
import { TENANT, type TestRegistry } from '../../fixtures/registry.js';
import { replacedIn, withStatusesRewritten } from '../../fixtures/rewritten.js';
import { engineTest } from './setup.js';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let client: Client;
let proofId: string;

const it = engineTest({ waitMs: 1_000 });

it.beforeAll(async ({ setup }) => {
  ({ db, registry, engine } = setup);
  client = await clientOf(db, registry, engine);
});
it.beforeEach(async ({ setup }) => {
  proofId = await setup.admitOne();
});

const revoke = (body = revocationBody(), who = client, about = proofId): Promise<Reply> =>
  who.post(`/v1/proofs/${about}/revocations`, body);
const read = (kind = 'proof', who = client, about = proofId): Promise<Reply> =>
  who.get(`/v1/proofs/${about}/revocations/${kind}`);

function expectProblem(reply: Reply, status: number, code: string, pointer?: string): void {
  expect(reply.headers['content-type']).toBe('application/problem+json');
  const problem = problemSchema.parse(reply.json);
  expect({ status: reply.status, code: problem.code }).toEqual({ status, code });
  if (pointer !== undefined) expect(problem.errors?.[0]?.pointer).toBe(pointer);
}

describe('POST /v1/proofs/{proof_id}/revocations', () => {
  it.each(['proof', 'passport', 'certificate', 'trust'])('revokes a %s: 201', async (kind) => {
    const before = await treeSize(registry.engine);
    const reply = await revoke(revocationBody({ artifact_kind: kind }));
    expect(reply.status).toBe(201);
    const revocation = revocationSchema.parse(reply.json);
    expect(revocation).toMatchObject({
      proof_id: proofId,
      artifact_kind: kind,
      status: 'REVOKED',
      leaf_index: before,
    });
    expect(reply.headers.location).toBe(`/v1/proofs/${proofId}/revocations/${kind}`);
    expect(reply.headers['cache-control']).toBe('no-store');
    const again = await client.get(reply.headers.location!);
    expect(again.status).toBe(200);
    expect(again.bytes).toEqual(reply.bytes);
  });

  it('returns the first revocation when sent again with another reason: 200', async () => {
    const first = await revoke();
    const before = await treeSize(registry.engine);
    for (const body of [revocationBody(), revocationBody({ reason: 'another', actor: 'me' })]) {
      const again = await revoke(body);
      expect(again.status).toBe(200);
      expect(again.headers['idempotent-replayed']).toBe('true');
      expect(again.bytes).toEqual(first.bytes);
    }
    expect(await treeSize(registry.engine)).toBe(before);
  });

  it('creates one entry for concurrent requests', async () => {
    const before = await treeSize(registry.engine);
    const replies = await Promise.all(
      Array.from({ length: 8 }, (_, n) => revoke(revocationBody({ reason: `reason ${n}` }))),
    );
    expect(replies.map(({ status }) => status).sort()).toEqual([
      ...Array<number>(7).fill(200),
      201,
    ]);
    expect(new Set(replies.map(({ bytes }) => bytes.toString())).size).toBe(1);
    expect(await treeSize(registry.engine)).toBe(before + 1);
  });

  it('returns an administrator’s earlier revocation: 200', async () => {
    const leafIndex = await appendRevocation(registry.admin, nativeSha256, {
      proofId,
      artifactKind: 'proof',
      reason: 'the operator says so',
      actor: 'operator',
      salt: '1'.repeat(64),
    });
    const reply = await revoke();
    expect(reply.status).toBe(200);
    expect(reply.json).toMatchObject({ leaf_index: leafIndex });
  });

  it('logs only the salted hash of the reason', async () => {
    const salts = new Set<string>();
    for (const kind of ['proof', 'trust']) {
      const { json } = await revoke(revocationBody({ artifact_kind: kind }));
      const [entry] = await db.sql<{ body: Buffer }[]>`
        select body from svc.log_entry where leaf_index = ${Number(json['leaf_index'])}`;
      expect(entry!.body.toString()).not.toMatch(/it was wrong|auditor/);
      const [stored] = await db.sql<{ document: Buffer }[]>`
        select document from svc.revocation_reason
        where reason_hash = ${Buffer.from(String(json['reason_hash']), 'hex')}`;
      const reason = parseRevocationReason(stored!.document);
      expect(reason).toMatchObject({ reason: 'it was wrong', actor: 'auditor' });
      salts.add(reason.salt);
    }
    expect(salts.size).toBe(2);
  });

  it('works in a locked environment and off the allowlist', async () => {
    await setLane(registry.admin, 'sandbox', false);
    await setAllowlisted(registry.admin, TENANT, false);
    const reply = await revoke();
    await setLane(registry.admin, 'sandbox', true);
    await setAllowlisted(registry.admin, TENANT, true);
    expect(reply.status).toBe(201);
  });

  it('responds with 202 when slow, and the same revocation later', async () => {
    engine.worker.rests = true;
    const reply = await revoke();
    expect(reply.status).toBe(202);
    expect(revocationStatusSchema.parse(reply.json)).toMatchObject({ state: 'pending' });
    expect(reply.headers['retry-after']).toBe('1');
    const { location = '' } = reply.headers;
    const pending = await client.get(location);
    expect({ status: pending.status, json: pending.json }).toEqual({
      status: 202,
      json: reply.json,
    });
    engine.worker.rests = false;
    await engine.worker.work();
    expect((await client.get(location)).status).toBe(200);
    expect((await revoke()).status).toBe(200);
  });

  it('completes without the queue', async () => {
    engine.worker.fails = new Error('the queue is away');
    const reply = await revoke();
    engine.worker.fails = null;
    expect(reply.status).toBe(202);
    const [row] = await db.sql<{ id: string }[]>`
      select replace(request_id::text, '-', '') as id from svc.revocation_pending`;
    engine.worker.revocations.push([row!.id]);
    await engine.worker.work();
    expect((await read()).status).toBe(200);
  });

  it('revokes nothing when the key is revoked first: 403', async () => {
    const stolen = await clientOf(db, registry, engine);
    engine.worker.rests = true;
    const asked = revoke(revocationBody(), stolen);
    await expect.poll(() => engine.worker.revocations.length).toBe(1);
    await revokeApiKey(registry.admin, stolen.keyId);
    engine.worker.rests = false;
    await engine.worker.work();
    expectProblem(await asked, 403, 'api_key_revoked');
    expectProblem(await read(), 403, 'api_key_revoked');
    expectProblem(await revoke(revocationBody(), stolen), 401, 'unauthenticated');
    expect((await revoke()).status).toBe(201);
  });

  it('submits again after the awaited request was rejected for its key: 201', async () => {
    const stolen = await clientOf(db, registry, engine);
    engine.worker.rests = true;
    const first = revoke(revocationBody(), stolen);
    await expect.poll(() => engine.worker.revocations.length, { interval: 5 }).toBe(1);
    const second = revoke(revocationBody({ reason: 'it was stolen' }));
    // Nothing shows from outside that it waits.
    await sleep(200);
    await revokeApiKey(registry.admin, stolen.keyId);
    engine.worker.rests = false;
    await engine.worker.work();
    expectProblem(await first, 403, 'api_key_revoked');
    expect((await second).status).toBe(201);
    expect((await read()).bytes).toEqual((await second).bytes);
  });

  it.each([
    ['is no JSON', "'x'"],
    ['is of another artifact', replacedIn('trust', 'proof')],
  ])('where the log has one that was rewritten and %s is 500', async (_, body) => {
    expect((await revoke(revocationBody({ artifact_kind: 'trust' }))).status).toBe(201);
    await withStatusesRewritten(db, proofId, body, async () => {
      for (const kind of ['proof', 'trust', 'certificate']) {
        const reply = await revoke(revocationBody({ artifact_kind: kind }));
        expectProblem(reply, 500, 'integrity_failure');
        expectProblem(await read(kind), 500, 'integrity_failure');
      }
    });
    expect((await revoke(revocationBody({ artifact_kind: 'trust' }))).status).toBe(200);
  });

  it('responds with 500 when processing fails', async () => {
    engine.worker.rests = true;
    const asked = revoke();
    await expect.poll(() => engine.worker.revocations.length).toBe(1);
    await db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx`update svc.revocation_request set document = '\\x7b7d'
        where proof_id = ${proofId}::uuid`;
    });
    engine.worker.rests = false;
    await engine.worker.work();
    expectProblem(await asked, 500, 'revocation_failed');
    expectProblem(await read(), 500, 'revocation_failed');
  });

  it('rejects other artifacts of a denial or an outcome: 422', async () => {
    const [denied = ''] = await registry.admitAll([registry.item({ action: 'DELETE_AUDIT_LOG' })]);
    const [outcome = ''] = await registry.admitAll([
      agentItem(registry, outcomeEnvelope(proofId, { result: 'failed' })),
    ]);
    for (const id of [denied, outcome]) {
      for (const kind of ['passport', 'certificate', 'trust']) {
        const reply = await revoke(revocationBody({ artifact_kind: kind }), client, id);
        expectProblem(reply, 422, 'artifact_absent', '/artifact_kind');
      }
      expect((await revoke(revocationBody(), client, id)).status).toBe(201);
    }
  });

  it('responds with 404 for malformed ids', async () => {
    for (const about of ['x', '0'.repeat(32), '%00']) {
      expectProblem(await revoke(revocationBody(), client, about), 404, 'proof_not_found');
      expectProblem(await read('proof', client, about), 404, 'revocation_not_found');
    }
  });

  it.each([
    [{ schema_version: 'svc.lifecycle.revocation_request/2.0' }, 'unsupported_schema_version'],
    [{ artifact_kind: 'package' }, 'invalid_field', '/artifact_kind'],
    [{ reason: '' }, 'invalid_field', '/reason'],
    [{ actor: 'x'.repeat(513) }, 'invalid_field', '/actor'],
    [{ status: 'VALID' }, 'unknown_field', '/status'],
  ])('refuses %j', async (overrides, code, pointer = '/schema_version') => {
    expectProblem(await revoke(revocationBody(overrides)), 400, code, pointer);
  });
});

describe('GET /v1/proofs/{proof_id}/revocations/{artifact_kind}', () => {
  it('responds with 404 without a revocation or for an unknown artifact', async () => {
    await revoke(revocationBody({ artifact_kind: 'passport' }));
    for (const kind of ['proof', 'certificate', 'trust', 'package', 'PASSPORT', '%00']) {
      expectProblem(await read(kind), 404, 'revocation_not_found');
    }
  });
});
