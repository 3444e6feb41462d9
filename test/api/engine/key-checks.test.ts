import type * as crypto from 'node:crypto';
import { randomBytes } from 'node:crypto';
import { describe, expect, vi } from 'vitest';
import { formatApiKey } from '#protocol/api-key';
import { revokeApiKey } from '#sql/tenants/administration';
import type * as tenants from '#sql/tenants/authenticate';
import { executeBody, without, type Reply } from '../../fixtures/engine.js';
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
vi.mock('#sql/tenants/authenticate', async (original) => {
  const real = await original<typeof tenants>();
  const authenticate: typeof real.authenticate = (sql, keyIds) => {
    done.lookedUp.push([...keyIds]);
    return real.authenticate(sql, keyIds);
  };
  return { ...real, authenticate };
});

const it = engineTest();

it.beforeEach(() => {
  done.compared = [];
  done.lookedUp = [];
});

/** Each key has exactly the fault in its name: form and checksum are otherwise valid. */
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

const send = ({ execute }: Setup, key: string): Promise<Reply> =>
  execute(executeBody(), { 'X-Svc-Api-Key': key, 'X-Request-Id': 'same' });

describe('API key check', () => {
  it.for(Object.keys(KEYS))(
    'runs one query and one hash comparison for %s',
    async (name, { setup }) => {
      const { status } = await send(setup, await KEYS[name]!(setup));
      expect(status === 401).toBe(name !== 'good');
      expect(done.compared).toEqual([[32, 32]]);
      expect(done.lookedUp).toHaveLength(1);
      expect(done.lookedUp[0]).toHaveLength(1);
      // The query has only the public key id, never the secret.
      expect(done.lookedUp[0]![0]).toMatch(/^[a-z0-9]{12}$/);
    },
  );

  it('returns the same bytes for every invalid key', async ({ setup }) => {
    const answers = new Map<string, string>();
    for (const [name, make] of Object.entries(KEYS)) {
      if (name === 'good') continue;
      const { status, headers, bytes } = await send(setup, await make(setup));
      answers.set(JSON.stringify([status, without(headers, 'date'), bytes.toString()]), name);
    }
    expect([...answers.values()]).toHaveLength(1);
  });
});
