import { afterAll, describe, expect, it } from 'vitest';
import { apiKeySecretHash, parseApiKey } from '#runtime/crypto/api-key';
import { done } from '../fixtures/admin.js';
import { APPEND_LOCK, holdLock, untilWaiting } from '../fixtures/hold-lock.js';
import { executeBody, headersFor, startEngine } from '../fixtures/engine.js';
import { TENANT } from '../fixtures/registry.js';
import { testRegistry } from './world.js';

const { db, registry, admin } = await testRegistry();
const engine = await startEngine(registry);
afterAll(() => engine.close());

const issue = (...options: string[]): Promise<Record<string, unknown>> =>
  done(admin('key', 'issue', TENANT, '--review', 'REV-1', ...options));

/** The response status of a request with an API key. */
async function statusWith(key: unknown): Promise<number> {
  const body = JSON.stringify(executeBody());
  return (await engine.call({ headers: headersFor(String(key)), body })).status;
}

/** Moves the expiry of a key into the past, instead of waiting. */
const letExpire = (keyId: unknown) =>
  db.sql`update svc.api_key set expires_at = now() - interval '1 second' where key_id = ${String(keyId)}`;

describe('admin key issue', () => {
  it('creates a key that works at once, only within its scopes', async () => {
    const issued = await issue();
    expect(issued).toMatchObject({ scopes: ['admit', 'read'], expires_at: null });
    expect(await statusWith(issued['api_key'])).toBe(200);
    const reader = await issue('--scopes', 'read,export,read');
    expect(reader['scopes']).toEqual(['read', 'export']);
    expect(await statusWith(reader['api_key'])).toBe(403);
    const keys = (await done(admin('key', 'list', TENANT))) as unknown as { key_id: string }[];
    expect(keys.find(({ key_id }) => key_id === issued['key_id'])).toMatchObject({
      state: 'active',
      review: 'REV-1',
    });
  });

  it('stores only a hash of the secret, and `admin key list` does not print the hash', async () => {
    const { keyId, secret } = parseApiKey(String((await issue())['api_key']))!;
    const [row] = await db.sql<{ secret_hash: Buffer }[]>`
      select secret_hash from svc.api_key where key_id = ${keyId}`;
    expect(row!.secret_hash.equals(apiKeySecretHash(secret))).toBe(true);
    const { out } = await admin('key', 'list', TENANT);
    expect(out).toContain(keyId);
    expect(out).not.toContain(row!.secret_hash.toString('hex'));
  });
});

describe('admin key issue with a restriction', () => {
  const options = ['--agent', 'agent-7', '--action', 'BOOK_*', 'PAY', '--tool', 'a b.*'];
  const restriction = { agent_id: 'agent-7', actions: ['BOOK_*', 'PAY'], tools: ['a b.*'] };

  it('creates a key that keeps the restriction when it is rotated', async () => {
    const issued = await issue(...options);
    expect(issued).toMatchObject({ restriction });
    expect(await statusWith(issued['api_key'])).toBe(403);
    const rotated = await done(admin('key', 'rotate', String(issued['key_id'])));
    expect(rotated).toMatchObject({ restriction });
    expect(await statusWith(rotated['api_key'])).toBe(403);
    const keys = (await done(admin('key', 'list', TENANT))) as unknown as { key_id: string }[];
    for (const { key_id: id } of [issued, rotated]) {
      expect(keys.find(({ key_id }) => key_id === id)).toMatchObject({ restriction });
    }
  });

  it('rejects an invalid restriction, and a restricted key that manages keys', async () => {
    for (const [given, reason] of [
      [['--action', 'book'], 'actions.0: expected an action'],
      [['--environment', 'test'], 'environment: '],
      [[...options, '--scopes', 'admit,keys'], 'cannot have the scope approvers'],
    ] as const) {
      const { code, err } = await admin('key', 'issue', TENANT, '--review', 'REV-1', ...given);
      expect([code, err]).toEqual([2, expect.stringContaining(reason)]);
    }
  });
});

it('admin key expire > can move an expiry earlier, but never later', async () => {
  const { key_id: keyId } = await issue('--expires-in', '60');
  for (const [seconds, atMost] of [
    ['3600', 61_000],
    ['5', 6_000],
  ] as const) {
    const { expires_at: at } = await done(admin('key', 'expire', String(keyId), seconds));
    expect(Date.parse(String(at)) - Date.now()).toBeLessThan(atMost);
  }
});

describe('admin key revoke', () => {
  it('is permanent', async () => {
    const issued = await issue();
    const keyId = String(issued['key_id']);
    await done(admin('key', 'revoke', keyId));
    expect(await statusWith(issued['api_key'])).toBe(401);
    const { code, err } = await admin('key', 'expire', keyId, '3600');
    expect([code, err]).toEqual([1, expect.stringContaining('is already revoked')]);
  });

  it('waits for the append lock, so that no admission of the key is signed afterwards', async () => {
    const issued = await issue();
    const unlock = await holdLock(db.sql, APPEND_LOCK);
    let returned = false;
    const revoked = done(admin('key', 'revoke', String(issued['key_id']))).then(() => {
      returned = true;
    });
    await untilWaiting(db.sql);
    expect(returned).toBe(false);
    await unlock();
    await revoked;
  });
});

describe('admin key rotate', () => {
  it('keeps both keys valid during the overlap, and afterwards only the new key', async () => {
    const old = await issue('--scopes', 'admit,export');
    const fresh = await done(admin('key', 'rotate', String(old['key_id']), '--overlap', '60'));
    expect(fresh).toMatchObject({
      scopes: ['admit', 'export'],
      review: 'REV-1',
      replaces: old['key_id'],
    });
    expect(await statusWith(old['api_key'])).toBe(200);
    await letExpire(old['key_id']);
    expect(await statusWith(old['api_key'])).toBe(401);
    expect(await statusWith(fresh['api_key'])).toBe(200);
    await done(admin('key', 'rotate', String(fresh['key_id']), '--overlap', '0'));
    expect(await statusWith(fresh['api_key'])).toBe(401);
  });

  it('gives the new key the lifetime of the old key, and does not prolong the old key by the overlap', async () => {
    const old = await issue('--expires-in', '7200');
    const fresh = await done(admin('key', 'rotate', String(old['key_id'])));
    for (const name of ['expires_at', 'replaced_until']) {
      const left = Date.parse(String(fresh[name])) - Date.now();
      expect(Math.abs(left - 7_200_000)).toBeLessThan(10_000);
    }
  });

  it('creates only one new key when called twice, and none for an expired key', async () => {
    const keyId = String((await issue())['key_id']);
    // Both commands begin while a third connection locks the row, so neither sees the other's key.
    const held = `select from svc.api_key where key_id = '${keyId}' for update`;
    const release = await holdLock(db.sql, held);
    const rotating = Promise.all([admin('key', 'rotate', keyId), admin('key', 'rotate', keyId)]);
    await untilWaiting(db.sql, 2);
    await release();
    const both = await rotating;
    expect(both.map(({ code }) => code).sort()).toEqual([0, 1]);
    expect(both.map(({ err }) => err).join('')).toContain('was already rotated');
    for (const [end, reason] of [
      [['revoke'], 'is revoked'],
      [['expire', '0'], 'is expired'],
    ] as const) {
      const ended = String((await issue())['key_id']);
      await done(admin('key', end[0], ended, ...end.slice(1)));
      const { code, err } = await admin('key', 'rotate', ended);
      expect([code, err]).toEqual([1, expect.stringContaining(reason)]);
    }
  });
});
