import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { apiKeyIdFrom, apiKeySecretHash, formatApiKey } from '#protocol/api-key';
import { nativeSha256 } from '#runtime/crypto/node';
import { revokeApiKey } from '#sql/tenants/administration';
import { rotateApiKey } from '#sql/tenants/api-keys';
import { treeSize } from '#sql/log/log';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import {
  executeBody,
  headersFor,
  issueKey,
  startEngine,
  type Reply,
  type TestEngine,
} from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { openRegistry, type TestRegistry } from '../../fixtures/registry.js';

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  engine = await startEngine(registry);
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});

const idOf = (apiKey: string): string => apiKey.slice(7, 19);

const lanes = [
  { name: 'execute', path: '/v1/intents/execute', body: executeBody },
  { name: 'agent', path: '/v1/agent/admissions', body: admissionEnvelope },
] as const;

const send = (apiKey: string, lane: (typeof lanes)[number] = lanes[0], body = lane.body()) =>
  engine.call({ path: lane.path, headers: headersFor(apiKey), body: JSON.stringify(body) });

/** Sends sequential requests in parallel strands until stopped. */
function load(strands: number, keyNow: () => string) {
  let isOver = false;
  const replies: (Reply & { sentAt: number })[] = [];
  const strand = async (): Promise<void> => {
    while (!isOver) {
      const sentAt = performance.now();
      replies.push({ ...(await send(keyNow())), sentAt });
    }
  };
  const all = Promise.all(Array.from({ length: strands }, strand));
  return {
    replies,
    stop: async () => {
      isOver = true;
      await all;
    },
  };
}

describe('revoked API key', () => {
  it('gets 401 within a second under load', async () => {
    const key = await issueKey(registry);
    const running = load(8, () => key);
    await expect.poll(() => running.replies.length).toBeGreaterThan(20);
    await revokeApiKey(registry.admin, idOf(key));
    const revokedAt = performance.now();
    await expect.poll(() => running.replies.at(-1)?.status, { interval: 5 }).toBe(401);
    const refusedAt = performance.now();
    expect(refusedAt - revokedAt).toBeLessThan(1_000);
    const later = () =>
      running.replies.flatMap(({ sentAt, status }) => (sentAt > refusedAt ? [status] : []));
    await expect.poll(() => later().length).toBeGreaterThan(20);
    await running.stop();
    expect(new Set(later())).toEqual(new Set([401]));
    for (const reply of running.replies) {
      // Requests in flight at that moment may get api_key_revoked, and nothing else.
      expect([200, 401, 403]).toContain(reply.status);
      if (reply.status === 403) expectProblem(reply, 403, 'api_key_revoked');
    }
  });

  it.each(lanes)('rejects its unsigned admissions: $name', async (lane) => {
    const key = await issueKey(registry);
    const body = lane.body();
    engine.worker.rests = true;
    const waiting = send(key, lane, body);
    await expect.poll(() => engine.worker.jobs.length).toBe(1);
    const before = await treeSize(registry.engine);
    await revokeApiKey(registry.admin, idOf(key));
    await engine.worker.work();
    engine.worker.rests = false;
    expectProblem(await waiting, 403, 'api_key_revoked');
    expect(await treeSize(registry.engine)).toBe(before);
    // A rejected admission has no proof, so another key may send it again.
    const again = await send(await issueKey(registry), lane, body);
    expect(again.status).toBe(200);
    expect(again.headers['idempotent-replayed']).toBeUndefined();
  });

  it('gets api_key_revoked when it polls a 202', async () => {
    const [key, other] = [await issueKey(registry), await issueKey(registry)];
    const shortWait = await startEngine(registry, { waitMs: 50 });
    shortWait.worker.rests = true;
    const headers = headersFor(key);
    const accepted = await shortWait.call({ headers, body: JSON.stringify(executeBody()) });
    expect(accepted.status).toBe(202);
    await revokeApiKey(registry.admin, idOf(key));
    await shortWait.worker.work();
    const path = String(accepted.headers.location);
    const reply = await shortWait.call({ method: 'GET', path, headers: headersFor(other) });
    expectProblem(reply, 403, 'api_key_revoked');
    await shortWait.close();
  });
});

describe('expired API key', () => {
  it('does not affect its accepted admissions', async () => {
    const key = await issueKey(registry);
    engine.worker.rests = true;
    const waiting = send(key);
    await expect.poll(() => engine.worker.jobs.length).toBe(1);
    await db.sql`update svc.api_key set expires_at = now() where key_id = ${idOf(key)}`;
    await engine.worker.work();
    engine.worker.rests = false;
    expect((await waiting).status).toBe(200);
    expectProblem(await send(key), 401, 'unauthenticated');
  });
});

describe('API key rotation', () => {
  it('loses no request under load', async () => {
    let current = await issueKey(registry);
    const running = load(8, () => current);
    await expect.poll(() => running.replies.length).toBeGreaterThan(20);
    for (let round = 0; round < 2; round++) {
      const [keyId, secret] = [apiKeyIdFrom(randomBytes(8)), randomBytes(32)];
      await rotateApiKey(registry.admin, {
        oldKeyId: idOf(current),
        newKeyId: keyId,
        secretHash: apiKeySecretHash(nativeSha256, secret),
        overlap: 2,
      });
      const rotated = current;
      // The client has some of the overlap to learn of the new key.
      await sleep(200);
      current = formatApiKey({ keyId, secret });
      await expect.poll(async () => (await send(rotated)).status).toBe(401);
      expectProblem(await send(rotated), 401, 'unauthenticated');
    }
    await running.stop();
    expect(new Set(running.replies.map(({ status }) => status))).toEqual(new Set([200]));
  });
});
