import crypto, { randomBytes } from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { expect, vi } from 'vitest';
import { formatApiKey } from '#runtime/crypto/api-key';
import { revokeApiKey } from '#sql/tenants/api-keys';
import { executeBody, headersFor, startEngine, without } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { engineTest, keyIdOf, type Setup } from './setup.js';

const it = engineTest();

const send = ({ execute }: Setup, apiKey: string, body = executeBody()) =>
  execute(body, headersFor(apiKey));

/** API keys by test name. An invalid key has only the fault that the name states. */
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
  onTestFinished,
  setup,
}) => {
  const compare = vi.spyOn(crypto, 'timingSafeEqual');
  syncBuiltinESMExports();
  onTestFinished(() => {
    compare.mockRestore();
    syncBuiltinESMExports();
  });
  /** The key ids that each query looks up. */
  const lookedUp: unknown[] = [];
  const sql = new Proxy(setup.registry.engine, {
    apply: (pool, self, given: unknown[]) => {
      if (String(given[0]).includes('from svc.api_key')) lookedUp.push(given.at(-1));
      return Reflect.apply(pool, self, given) as unknown;
    },
  });
  const answers = new Set<string>();
  await setup.withEngine({ sql }, async (engine) => {
    for (const [name, make] of Object.entries(KEYS)) {
      const headers = { ...headersFor(await make(setup)), 'X-Request-Id': 'same' };
      compare.mockClear();
      lookedUp.length = 0;
      const reply = await engine.call({ headers, body: JSON.stringify(executeBody()) });
      expect([name, reply.status === 401]).toEqual([name, name !== 'good']);
      const compared = compare.mock.calls.map((hashes) => hashes.map((one) => one.byteLength));
      expect([name, compared]).toEqual([name, [[32, 32]]]);
      // The engine makes one query, which contains the id of the key, but not the secret.
      expect([name, lookedUp]).toEqual([name, [[expect.stringMatching(/^[a-z0-9]{12}$/)]]]);
      if (name === 'good') continue;
      answers.add(JSON.stringify([without(reply.headers, 'date'), reply.bytes.toString()]));
    }
  });
  expect(answers.size).toBe(1);
});

it('expired API key > is rejected by an engine whose clock is behind', async ({
  onTestFinished,
  setup,
}) => {
  const engine = await startEngine(setup.registry, {
    clock: { now: () => Date.now() - 3_600_000 },
  });
  onTestFinished(engine.close);
  const key = await setup.keyFor({ expiresAt: Date.now() - 1 });
  const sent = { headers: headersFor(key), body: JSON.stringify(executeBody()) };
  expect((await engine.call(sent)).status).toBe(401);
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
