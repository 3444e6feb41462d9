import type * as crypto from 'node:crypto';
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { formatApiKey } from '#protocol/api-key';
import { revokeApiKey } from '#sql/tenants/administration';
import type * as tenants from '#sql/tenants/authenticate';
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
import { openRegistry, type TestRegistry } from '../../fixtures/registry.js';

/** What is done for a key, and nothing in its place: how often it was compared, and looked up. */
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

let db: TestDatabase;
let registry: TestRegistry;
let engine: TestEngine;
let good: string;
beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  engine = await startEngine(registry);
  good = await issueKey(registry);
});
afterAll(async () => {
  await engine.close();
  await db.drop();
});
beforeEach(() => {
  done.compared = [];
  done.lookedUp = [];
});

const idOf = (key: string): string => key.slice(7, 19);
const ask = (key: string): Promise<Reply> =>
  engine.call({
    headers: { ...headersFor(key), 'X-Request-Id': 'same' },
    body: JSON.stringify(executeBody()),
  });

/** Each key has exactly the fault in its name: form and checksum are otherwise valid. */
const KEYS: Record<string, () => Promise<string>> = {
  good: () => Promise.resolve(good),
  'without form': () => Promise.resolve('svc_sk_nonsense'),
  'with a wrong checksum': () =>
    Promise.resolve(good.slice(0, -1) + (good.endsWith('0') ? '1' : '0')),
  unknown: () => Promise.resolve(formatApiKey({ keyId: 'z'.repeat(12), secret: randomBytes(32) })),
  'with another secret': () =>
    Promise.resolve(formatApiKey({ keyId: idOf(good), secret: randomBytes(32) })),
  revoked: async () => {
    const key = await issueKey(registry);
    await revokeApiKey(registry.admin, idOf(key));
    return key;
  },
  expired: () => issueKey(registry, { expiresAt: Date.now() - 1 }),
};

describe('API key check', () => {
  it.each(Object.keys(KEYS))('runs one query and one hash comparison for %s', async (name) => {
    const key = await KEYS[name]!();
    const { status } = await ask(key);
    expect(status === 401).toBe(name !== 'good');
    expect(done.compared).toEqual([[32, 32]]);
    expect(done.lookedUp).toHaveLength(1);
    expect(done.lookedUp[0]).toHaveLength(1);
    // The query has only the public key id, never the secret.
    expect(done.lookedUp[0]![0]).toMatch(/^[a-z0-9]{12}$/);
  });

  it('returns the same bytes for every invalid key', async () => {
    const answers = new Map<string, string>();
    for (const [name, make] of Object.entries(KEYS)) {
      if (name === 'good') continue;
      const { status, headers, bytes } = await ask(await make());
      answers.set(JSON.stringify([status, without(headers, 'date'), bytes.toString()]), name);
    }
    expect([...answers.values()]).toHaveLength(1);
  });
});
