import { describe, expect, it } from 'vitest';
import { nativeVerify } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { bulkVerification } from '#runtime/crypto/sodium';

describe('bulkVerification', () => {
  it('uses OpenSSL when there is no libsodium binary, and reports why', async () => {
    const reason = new Error('cannot find addon');
    const found = await bulkVerification(() => Promise.reject(reason));
    expect(found).toEqual({ library: 'OpenSSL', verify: nativeVerify, reason });
  });

  it.each([
    ['takes everything for right', () => true],
    ['takes everything for wrong', () => false],
    [
      'does not look at the message',
      (signature: Uint8Array) => signature[0] === 0x62 && signature[40] === 0xae,
    ],
    [
      'does not look at R',
      (signature: Uint8Array, message: Uint8Array) => signature[40] === 0xae && message[1] === 0x82,
    ],
  ])('does not use libsodium when the binary %s', async (_, crypto_sign_verify_detached) => {
    await expect(
      bulkVerification(() => Promise.resolve({ crypto_sign_verify_detached })),
    ).rejects.toThrow(OperatorError);
  });
});
