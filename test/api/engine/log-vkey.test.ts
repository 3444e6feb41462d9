import { describe, expect, it } from 'vitest';
import { vkeyFor } from '#api/engine/proofs/prove-inclusion';
import { formatVkey } from '#protocol/note';
import { nativeSha256 } from '#runtime/crypto/node';
import { testKey } from '../../fixtures/snapshot.js';
import { checkpoint, logVkey, ORIGIN } from '../../fixtures/worked-log.js';

const newer = formatVkey(nativeSha256, ORIGIN, testKey().publicKey);

describe('vkeyFor', () => {
  it('returns the key that signed the checkpoint after a rotation', () => {
    expect(vkeyFor(checkpoint, { logVkey: newer, retiredLogVkeys: [logVkey] })).toBe(logVkey);
    expect(vkeyFor(checkpoint, { logVkey, retiredLogVkeys: [newer] })).toBe(logVkey);
  });

  it('returns the current key when no known key signed', () => {
    expect(vkeyFor(checkpoint, { logVkey: newer, retiredLogVkeys: [] })).toBe(newer);
    expect(vkeyFor(checkpoint, { logVkey: newer, retiredLogVkeys: ['nonsense'] })).toBe(newer);
    expect(vkeyFor(checkpoint, { logVkey: null, retiredLogVkeys: [] })).toBeNull();
  });
});
