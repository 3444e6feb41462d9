import type * as crypto from 'node:crypto';
import { randomBytes } from 'node:crypto';
import { expect, vi } from 'vitest';
import { formatApiKey } from '#runtime/crypto/api-key';
import type * as tenants from '#sql/tenants/api-keys';
import { revokeApiKey } from '#sql/tenants/administration';
import { executeBody, headersFor, without } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { engineTest, keyIdOf, type Setup } from './setup.js';

/** Records the sizes of compared hashes, and the key ids that each query looks up. */
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

it('API key check > does the same work and gives the same response for every invalid key', async ({
  setup,
}) => {
  const answers = new Set<string>();
  for (const [name, make] of Object.entries(KEYS)) {
    const headers = { 'X-Svc-Api-Key': await make(setup), 'X-Request-Id': 'same' };
    done.compared = [];
    done.lookedUp = [];
    const reply = await setup.execute(executeBody(), headers);
    expect([name, reply.status === 401]).toEqual([name, name !== 'good']);
    expect([name, done.compared]).toEqual([name, [[32, 32]]]);
    // The engine makes one query, with the public key id and without the secret.
    expect([name, done.lookedUp]).toEqual([name, [[expect.stringMatching(/^[a-z0-9]{12}$/)]]]);
    if (name === 'good') continue;
    answers.add(JSON.stringify([without(reply.headers, 'date'), reply.bytes.toString()]));
  }
  expect(answers.size).toBe(1);
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
