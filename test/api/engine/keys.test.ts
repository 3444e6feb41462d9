import type * as crypto from 'node:crypto';
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, vi } from 'vitest';
import { apiKeyIdFrom, apiKeySecretHash, formatApiKey } from '#protocol/api-key';
import { nativeSha256 } from '#runtime/crypto/node';
import type * as tenants from '#sql/tenants/api-keys';
import { rotateApiKey } from '#sql/tenants/api-keys';
import { revokeApiKey } from '#sql/tenants/administration';
import { executeBody, headersFor, without, type Reply } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { engineTest, keyIdOf, type Setup } from './setup.js';

/** Sizes of compared hashes, and key ids of queries. */
const done = vi.hoisted(() => ({ compared: [] as number[][], lookedUp: [] as string[][] }));

vi.mock('node:crypto', async (original) => {
  const real = await original<typeof crypto>();
  const timingSafeEqual: typeof real.timingSafeEqual = (a, b) => {
    done.compared.push([a.byteLength, b.byteLength]);
    return real.timingSafeEqual(a, b);
  };
  return { ...real, timingSafeEqual };
});
vi.mock('#sql/tenants/api-keys', async (original) => {
  const real = await original<typeof tenants>();
  const authenticate: typeof real.authenticate = (sql, keyIds) => {
    done.lookedUp.push([...keyIds]);
    return real.authenticate(sql, keyIds);
  };
  return { ...real, authenticate };
});

const it = engineTest();

const send = ({ execute }: Setup, apiKey: string, body = executeBody()) =>
  execute(body, headersFor(apiKey));

/** Each key has only the fault in its name: format and checksum are otherwise valid. */
const KEYS: Record<string, (setup: Setup) => string | Promise<string>> = {
  good: ({ key }) => key,
  malformed: () => 'svc_sk_nonsense',
  'with a wrong checksum': ({ key }) => key.slice(0, -1) + (key.endsWith('0') ? '1' : '0'),
  unknown: () => formatApiKey({ keyId: 'z'.repeat(12), secret: randomBytes(32) }),
  'with another secret': ({ key }) =>
    formatApiKey({ keyId: keyIdOf(key), secret: randomBytes(32) }),
  'sent twice': ({ key }) => `${key}, ${key}`,
  revoked: async ({ keyFor, registry }) => {
    const key = await keyFor();
    await revokeApiKey(registry.admin, keyIdOf(key));
    return key;
  },
  expired: ({ keyFor }) => keyFor({ expiresAt: Date.now() - 1 }),
};

/** Sends requests in parallel until stopped, each strand one after the other. */
function load(setup: Setup, strands: number, keyNow: () => string) {
  let isOver = false;
  const replies: (Reply & { sentAt: number })[] = [];
  const strand = async (): Promise<void> => {
    while (!isOver) {
      const sentAt = performance.now();
      replies.push({ ...(await send(setup, keyNow())), sentAt });
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

it('API key check > is equal in work and response for any invalid key', async ({ setup }) => {
  const answers = new Set<string>();
  for (const [name, make] of Object.entries(KEYS)) {
    const headers = { 'X-Svc-Api-Key': await make(setup), 'X-Request-Id': 'same' };
    done.compared = [];
    done.lookedUp = [];
    const reply = await setup.execute(executeBody(), headers);
    expect([name, reply.status === 401]).toEqual([name, name !== 'good']);
    expect([name, done.compared]).toEqual([name, [[32, 32]]]);
    // One query, which has only the public key id, never the secret.
    expect([name, done.lookedUp]).toEqual([name, [[expect.stringMatching(/^[a-z0-9]{12}$/)]]]);
    if (name === 'good') continue;
    answers.add(JSON.stringify([without(reply.headers, 'date'), reply.bytes.toString()]));
  }
  expect(answers.size).toBe(1);
});

describe('revoked API key', () => {
  it('gets 401 within a second of its revocation under load', async ({ setup }) => {
    const key = await setup.keyFor();
    const running = load(setup, 8, () => key);
    await expect.poll(() => running.replies.length).toBeGreaterThan(20);
    await revokeApiKey(setup.registry.admin, keyIdOf(key));
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
      // Requests in flight at the revocation may get only api_key_revoked.
      expect([200, 401, 403]).toContain(reply.status);
      if (reply.status === 403) expectProblem(reply, 403, 'api_key_revoked');
    }
  });

  it('has its accepted but unsigned admissions rejected', async ({ setup }) => {
    const key = await setup.keyFor();
    const body = executeBody();
    const before = await setup.treeSize();
    const rejected = await setup.whileItWaits(
      () => send(setup, key, body),
      () => revokeApiKey(setup.registry.admin, keyIdOf(key)),
    );
    expectProblem(rejected, 403, 'api_key_revoked');
    expect(await setup.treeSize()).toBe(before);
    // A rejected admission has no proof, so another key may send it again.
    const again = await send(setup, await setup.keyFor(), body);
    expect(again.status).toBe(200);
    expect(again.headers['idempotent-replayed']).toBeUndefined();
  });
});

it('expired API key > does not affect admissions that were accepted before its expiry', async ({
  setup,
}) => {
  const key = await setup.keyFor();
  const reply = await setup.whileItWaits(
    () => send(setup, key),
    () => setup.db.sql`update svc.api_key set expires_at = now() where key_id = ${keyIdOf(key)}`,
  );
  expect(reply.status).toBe(200);
  expectProblem(await send(setup, key), 401, 'unauthenticated');
});

it('API key rotation > fails no request under load', async ({ setup }) => {
  let current = await setup.keyFor();
  const running = load(setup, 8, () => current);
  await expect.poll(() => running.replies.length).toBeGreaterThan(20);
  const [keyId, secret] = [apiKeyIdFrom(randomBytes(8)), randomBytes(32)];
  await rotateApiKey(setup.registry.admin, {
    oldKeyId: keyIdOf(current),
    newKeyId: keyId,
    secretHash: apiKeySecretHash(nativeSha256, secret),
    overlap: 2,
  });
  const rotated = current;
  // The client needs some of the overlap to receive the new key.
  await sleep(200);
  current = formatApiKey({ keyId, secret });
  await expect.poll(async () => (await send(setup, rotated)).status).toBe(401);
  await running.stop();
  expect(new Set(running.replies.map(({ status }) => status))).toEqual(new Set([200]));
});
