import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { parseEntry } from '#protocol/entries';
import { nativeSha256 } from '#runtime/crypto/node';
import { AdministrationError } from '#sql/tenants/administration';
import { appendKeyChange, appendRevocation } from '#sql/lifecycle/entries';
import { statusEntriesOf, treeSize } from '#sql/log/log';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';

let db: TestDatabase;
let registry: TestRegistry;
beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
});
afterAll(() => db.drop());

describe('appendKeyChange', () => {
  const key = () => ({
    keyId: registry.admit.keyId,
    publicKey: toBase64Url(registry.admit.signer.publicKey),
  });

  it('activates a key once, so a retired or compromised key stays so', async () => {
    const again = appendKeyChange(registry.admin, nativeSha256, { ...key(), change: 'activate' });
    await expect(again).rejects.toThrow(AdministrationError);
  });

  it('rejects the end of a key that was never activated', async () => {
    const stranger = { keyId: 'A'.repeat(43), publicKey: 'A'.repeat(43) };
    for (const change of ['retire', 'compromise'] as const) {
      const ended = appendKeyChange(registry.admin, nativeSha256, {
        ...stranger,
        change,
        ...(change === 'compromise' ? { fromIndex: 0 } : {}),
      });
      await expect(ended).rejects.toThrow(/never activated/);
    }
  });
});

describe('appendRevocation', () => {
  const revocation = { artifactKind: 'proof' as const, reason: 'wrong', actor: 'auditor' };

  it('stores the reason in the database and only its hash in the log', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await appendRevocation(registry.admin, nativeSha256, {
      ...revocation,
      proofId: id,
      salt: '7'.repeat(64),
    });
    const size = await treeSize(registry.engine);
    const [entry] = await statusEntriesOf(registry.engine, [id], size);
    const parsed = parseEntry(entry!.body);
    const [stored] = await db.sql<{ document: Buffer }[]>`
      select document from svc.revocation_reason`;
    expect(parsed).toMatchObject({
      type: 'status',
      status: 'REVOKED',
      reason_hash: Buffer.from(nativeSha256(stored!.document)).toString('hex'),
    });
    expect(JSON.parse(stored!.document.toString())).toMatchObject({ reason: 'wrong' });
    expect(entry!.body.toString()).not.toContain('wrong');
  });

  it('appends nothing for an unknown proof', async () => {
    const before = await treeSize(registry.engine);
    for (const proofId of ['0190f3c8a1b27d3e8f4a5b6c7d8e9f00', '0'.repeat(32), 'nonsense']) {
      const revoked = appendRevocation(registry.admin, nativeSha256, {
        ...revocation,
        proofId,
        salt: '8'.repeat(64),
      });
      await expect(revoked).rejects.toThrow(AdministrationError);
    }
    expect(await treeSize(registry.engine)).toBe(before);
  });
});
