import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createSigningKey, nativeVerify } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { bulkSigningKey, bulkVerification } from '#runtime/crypto/sodium';
import { testFolder } from '../fixtures/test-folder.js';

const file = join(await testFolder(), 'key.pem');

describe('bulkVerification', () => {
  it('uses OpenSSL when there is no libsodium binary, and reports why', async () => {
    const reason = new Error('cannot find addon');
    const found = await bulkVerification(() => Promise.reject(reason));
    expect(found).toEqual({ library: 'OpenSSL', verify: nativeVerify, reason });
  });

  it.each([
    ['accepts every signature', () => true],
    ['rejects every signature', () => false],
    [
      'ignores the message',
      (signature: Uint8Array) => signature[0] === 0x62 && signature[40] === 0xae,
    ],
    [
      'ignores R',
      (signature: Uint8Array, message: Uint8Array) => signature[40] === 0xae && message[1] === 0x82,
    ],
  ])('does not use libsodium when the binary %s', async (_, crypto_sign_verify_detached) => {
    await expect(
      bulkVerification(() => Promise.resolve({ crypto_sign_verify_detached })),
    ).rejects.toThrow(OperatorError);
  });
});

describe('bulkSigningKey', () => {
  const key = createSigningKey(file);
  const message = Buffer.from('a message');

  it('signs with libsodium, with the same signature as OpenSSL', async () => {
    const found = await bulkSigningKey(file);
    expect(found.library).toBe('libsodium');
    expect(found.publicKey).toEqual(key.publicKey);
    expect(Buffer.from(found.sign(message))).toEqual(Buffer.from(key.sign(message)));
  });

  it('uses OpenSSL when there is no libsodium binary, and reports why', async () => {
    const reason = new Error('cannot find addon');
    const found = await bulkSigningKey(file, () => Promise.reject(reason));
    expect(found).toMatchObject({ library: 'OpenSSL', reason });
    expect(nativeVerify(key.publicKey, message, found.sign(message))).toBe(true);
  });

  it('throws an OperatorError for a libsodium binary whose signature differs from OpenSSL’s', async () => {
    const broken = {
      crypto_sign_detached: (signature: Buffer) => void signature.fill(0),
      crypto_sign_seed_keypair: () => undefined,
      sodium_malloc: (size: number) => Buffer.alloc(size),
      sodium_mprotect_readonly: () => undefined,
    };
    await expect(bulkSigningKey(file, () => Promise.resolve(broken))).rejects.toThrow(
      OperatorError,
    );
  });
});
