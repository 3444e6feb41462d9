import { equalBytes, utf8 } from '#protocol/bytes';
import { loadSigningKey, type SigningKey, withSeed } from './node.js';
import { brokenBinary, type Load, loadSodium } from './sodium.js';

/** A key for bulk signing, and the library behind it. */
export type BulkSigningKey = SigningKey &
  ({ library: 'libsodium' } | { library: 'OpenSSL'; reason: unknown });

const SIGNATURE_BYTES = 64;
const SECRET_KEY_BYTES = 64;

/**
 * The key of a PEM file in guarded memory of libsodium, which signs in half of OpenSSL's time.
 * Ed25519 signatures are deterministic, so both libraries give the same bytes. On platforms without
 * a libsodium binary, OpenSSL signs.
 *
 * @throws OperatorError when the file is unusable, or the libsodium binary signs incorrectly
 */
export async function bulkSigningKey(
  file: string,
  load: Load<
    | 'crypto_sign_detached'
    | 'crypto_sign_seed_keypair'
    | 'sodium_malloc'
    | 'sodium_mprotect_readonly'
  > = loadSodium,
): Promise<BulkSigningKey> {
  const known = loadSigningKey(file);
  const { publicKey } = known;
  let binding: Awaited<ReturnType<typeof load>>;
  try {
    binding = await load();
  } catch (reason) {
    return { ...known, library: 'OpenSSL', reason };
  }
  const secretKey = binding.sodium_malloc(SECRET_KEY_BYTES);
  withSeed(file, (seed) => {
    binding.crypto_sign_seed_keypair(Buffer.alloc(publicKey.length), secretKey, seed);
  });
  binding.sodium_mprotect_readonly(secretKey);
  const sign = (message: Uint8Array): Uint8Array => {
    const signature = Buffer.allocUnsafe(SIGNATURE_BYTES);
    binding.crypto_sign_detached(signature, message, secretKey);
    return signature;
  };
  const message = utf8('self-test of the signing key');
  if (!equalBytes(sign(message), known.sign(message))) throw brokenBinary('makes');
  return { publicKey, sign, library: 'libsodium' };
}
