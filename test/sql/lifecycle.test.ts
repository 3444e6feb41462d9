import { expect, it } from 'vitest';
import { nativeSha256 } from '#runtime/crypto/node';
import { AdministrationError } from '#sql/tenants/administration';
import { appendKeyChange, appendRevocation } from '#sql/lifecycle/entries';
import { treeSize } from '#sql/log/log';
import { useRegistry } from '../fixtures/use-registry.js';

const { registry } = useRegistry('file');

it('appendKeyChange > rejects the retirement of a key that was never activated', async () => {
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

const revocation = { artifactKind: 'proof' as const, reason: 'wrong', actor: 'auditor' };

it('appendRevocation > appends nothing for an unknown proof', async () => {
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
