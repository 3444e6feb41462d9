import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { nativeSha256 } from '#runtime/crypto/node';
import { appendKeyChange } from '#sql/lifecycle/entries';
import type { Logger } from '#runtime/process/log';
import { extendVerifiedPrefix } from '#workers/verify/verified-prefix';
import { scrub } from '#workers/verify/scrub';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { tampering } from '../fixtures/tampering.js';

let db: TestDatabase;
let registry: TestRegistry;

beforeEach(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
});
afterEach(() => db.drop());

const { leafOf, outcomeOf, tamper } = tampering(() => ({ db, registry }));

describe('signing keys', () => {
  const change = async (what: 'activate' | 'retire' | 'compromise', fromIndex?: number) => {
    const { keyId, signer } = registry.admit;
    await appendKeyChange(registry.admin, nativeSha256, {
      keyId,
      publicKey: toBase64Url(signer.publicKey),
      change: what,
      ...(fromIndex === undefined ? {} : { fromIndex }),
    });
  };

  it('verify earlier proofs when they are retired', async () => {
    const ids = await registry.admitAll([registry.item()]);
    await change('retire');
    await registry.verifyAll();
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(ids[0]!)).toBe('pass');
  });

  it('verify only proofs below the index of their compromise', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await registry.verifyAll();
    await change('compromise', await leafOf(ids[1]!));
    await registry.verifyAll();
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(ids[0]!)).toBe('pass');
    expect(await outcomeOf(ids[1]!)).toBe('fail');
  });

  it('are scrubbed newest first when they are compromised, with one log line', async () => {
    const ids = await registry.admitAll(Array.from({ length: 30 }, () => registry.item()));
    await registry.verifyAll();
    const lines: unknown[] = [];
    const take = (fields: unknown): number => lines.push(fields);
    const log = { ...registry.verify.log, error: take, warn: take } as unknown as Logger;
    const verify = { ...registry.verify, log };
    const first = await leafOf(ids[3]!);
    await change('compromise', first);
    while ((await extendVerifiedPrefix(verify, 1000)) > 0);
    await scrub(verify, 10);
    expect(await outcomeOf(ids[29]!)).toBe('fail');
    expect(await outcomeOf(ids[3]!)).toBe('pass');
    while ((await scrub(verify, 10)).urgent);
    expect(await outcomeOf(ids[3]!)).toBe('fail');
    const { keyId: key_id } = registry.admit;
    expect(lines).toEqual([{ key_id, from: first, to: await leafOf(ids[29]!), count: 27 }]);
  });

  it('are read up to the verified prefix by the scrubber', async () => {
    const ids = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await change('compromise', 0);
    expect(await scrub(registry.verify, 1000)).toEqual({ changed: 0, urgent: false });
    expect(await outcomeOf(ids[0]!)).toBe('pass');
  });

  it.each([
    ['is gone', `delete from svc.log_entry where leaf_index = 2`],
    [
      'goes for something else',
      `update svc.log_entry set kind = 2, proof_id = gen_random_uuid()
       where leaf_index = 2`,
    ],
    [
      'begins later',
      `update svc.log_entry set body = convert_to(
         replace(convert_from(body, 'UTF8'), '"from_index":0', '"from_index":9'), 'UTF8')
       where leaf_index = 2`,
    ],
  ])('stay compromised when the compromise %s in the database', async (_, statement) => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await change('compromise', 0);
    await registry.verifyAll();
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(id)).toBe('fail');
    await change('retire');
    await tamper(statement, []);
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(id)).toBe('fail');
    // Nor when the prefix goes on over it.
    await registry.verifyAll();
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(id)).toBe('fail');
  });

  it('stay untrusted when their history is lost and they are activated again', async () => {
    const [before = ''] = await registry.admitAll([registry.item()]);
    await change('compromise', 0);
    await registry.verifyAll();
    await tamper(
      'update svc.log_entry set kind = 2, proof_id = gen_random_uuid() where kind = 3',
      [],
    );
    await change('activate');
    const [after = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    for (const id of [before, after]) expect(await outcomeOf(id)).toBe('fail');
    await scrub(registry.verify, 1000);
    for (const id of [before, after]) expect(await outcomeOf(id)).toBe('fail');
  });

  it('verify nothing when their entry was changed', async () => {
    const ids = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await tamper(
      `update svc.log_entry set body = set_byte(body, 20, get_byte(body, 20) # 1) where kind = 3`,
      [],
    );
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(ids[0]!)).toBe('fail');
  });
});
