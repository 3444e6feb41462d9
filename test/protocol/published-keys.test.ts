import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { nobleSha256 } from '#protocol/hash';
import { keyStateAt } from '#protocol/key-state';
import { jwkThumbprint } from '#protocol/keys';
import type { KeyEntry } from '#protocol/schemas/log-entry';
import { aepKeys } from '#protocol/snapshot/keys';

const publicKeys = [1, 2].map((seed) => new Uint8Array(32).fill(seed));
const time = '2026-01-01T00:00:00.000Z';

const entryArbitrary = fc
  .record({
    key: fc.constantFrom(...publicKeys),
    change: fc.constantFrom('activate' as const, 'retire' as const, 'compromise' as const),
    from: fc.nat(12),
  })
  .map(({ key, change, from }): KeyEntry => ({
    schema_version: 'svc.registry.entry/1.0',
    type: 'key',
    use: 'aep',
    key_id: jwkThumbprint(nobleSha256, key),
    public_key: toBase64Url(key),
    change,
    ...(change === 'compromise' ? { from_index: from } : {}),
    time,
  }));

describe('published keys', () => {
  it('equal keyStateAt at every position, for any order of entries', () => {
    fc.assert(
      fc.property(fc.array(entryArbitrary, { maxLength: 8 }), (entries) => {
        const log = entries.map((entry, leafIndex) => ({ leafIndex, entry }));
        const published = aepKeys(nobleSha256, log);
        for (const publicKey of publicKeys) {
          const keyId = jwkThumbprint(nobleSha256, publicKey);
          const key = published.find(({ kid }) => kid === keyId);
          for (let index = 0; index <= 13; index += 1) {
            const counts =
              key !== undefined &&
              key.activated_at < index &&
              (key.retired_at === null || index <= key.retired_at) &&
              (key.compromised_from === null || index < key.compromised_from);
            expect(counts).toBe(keyStateAt(log, keyId, index, 100).state === 'active');
          }
        }
      }),
    );
  });
});
