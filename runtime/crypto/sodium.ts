import type sodium from 'sodium-native';
import { equalBytes, utf8 } from '#protocol/bytes';
import { type Ed25519Verify, strictEd25519 } from '#protocol/ed25519';
import { OperatorError } from '../process/operator-error.js';
import { type ExportableKey, generateKey, loadKey, nativeVerify, type SigningKey } from './node.js';

type Load<Part extends keyof typeof sodium> = () => Promise<Pick<typeof sodium, Part>>;

const loadSodium: Load<keyof typeof sodium> = async () => (await import('sodium-native')).default;

/** The library in use; `reason`: why the libsodium binary could not be loaded. */
type Library = { library: 'libsodium' } | { library: 'OpenSSL'; reason: unknown };

/**
 * Verifies with libsodium after the protocol's strict checks: the same verdict as every other
 * implementation, in two thirds of OpenSSL's time. On platforms without a libsodium
 * binary, OpenSSL verifies: slower, but equally strict.
 *
 * @throws OperatorError when the libsodium binary verifies incorrectly
 */
export async function bulkVerification(
  load: Load<'crypto_sign_verify_detached'> = loadSodium,
): Promise<{ verify: Ed25519Verify } & Library> {
  let binding;
  try {
    binding = await load();
  } catch (reason) {
    return { library: 'OpenSSL', verify: nativeVerify, reason };
  }
  const verify = strictEd25519((publicKey, message, signature) =>
    binding.crypto_sign_verify_detached(signature, message, publicKey),
  );
  if (!verifiesCorrectly(verify)) throw brokenBinary('verifies');
  return { library: 'libsodium', verify };
}

const SIGNATURE_BYTES = 64;
const SECRET_KEY_BYTES = 64;

type Sign = Load<
  'crypto_sign_detached' | 'crypto_sign_seed_keypair' | 'sodium_malloc' | 'sodium_mprotect_readonly'
>;

/**
 * The key of a PEM file in guarded memory of libsodium, which signs in half of OpenSSL's time.
 * Ed25519 signatures are deterministic, so both libraries give the same bytes. On platforms without
 * a libsodium binary, OpenSSL signs.
 *
 * @throws OperatorError when the file is unusable, or the libsodium binary signs incorrectly
 */
export const bulkSigningKey = (
  file: string,
  load: Sign = loadSodium,
): Promise<SigningKey & Library> => inGuardedMemory(loadKey(file), load);

/** A new key that exists in the memory of this process only; otherwise like {@link bulkSigningKey}. */
export const newBulkSigningKey = (): Promise<SigningKey & Library> =>
  inGuardedMemory(generateKey(), loadSodium);

async function inGuardedMemory(
  { withSeed, ...known }: ExportableKey,
  load: Sign,
): Promise<SigningKey & Library> {
  const { publicKey } = known;
  let binding: Awaited<ReturnType<typeof load>>;
  try {
    binding = await load();
  } catch (reason) {
    return { ...known, library: 'OpenSSL', reason };
  }
  const secretKey = binding.sodium_malloc(SECRET_KEY_BYTES);
  withSeed((seed) => {
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

const brokenBinary = (what: string): OperatorError =>
  new OperatorError(
    `The binary of the package sodium-native ${what} signatures incorrectly. Reinstall the packages with npm ci, which checks their hashes.`,
  );

/** A known signature: RFC 8032 §7.1, TEST 3. */
const KNOWN = {
  publicKey: Buffer.from('fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025', 'hex'),
  message: Buffer.from('af82', 'hex'),
  signature: Buffer.from(
    '6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a',
    'hex',
  ),
};

/** Tests a known signature, and that flipping a bit in any part makes it invalid. */
function verifiesCorrectly(verify: Ed25519Verify): boolean {
  const { publicKey, message, signature } = KNOWN;
  if (!verify(publicKey, message, signature)) return false;
  return (
    [0, 40].every((at) => {
      const turned = Buffer.from(signature);
      turned[at]! ^= 1;
      return !verify(publicKey, message, turned);
    }) && !verify(publicKey, Buffer.from('af83', 'hex'), signature)
  );
}
