import type sodium from 'sodium-native';
import { type Ed25519Verify, strictEd25519 } from '#protocol/ed25519';
import { nativeVerify } from './node.js';
import { OperatorError } from '../process/operator-error.js';

/** Signature verification for bulk work, and the library behind it. */
export type BulkVerification =
  | { library: 'libsodium'; verify: Ed25519Verify }
  /** `reason`: why the libsodium binary could not be loaded. */
  | { library: 'OpenSSL'; verify: Ed25519Verify; reason: unknown };

type Binding = typeof sodium;
export type Load<Part extends keyof Binding> = () => Promise<Pick<Binding, Part>>;

export const loadSodium: Load<keyof Binding> = async () => (await import('sodium-native')).default;

/**
 * libsodium behind the protocol's strict checks: the same verdict as every other implementation, in
 * two thirds of OpenSSL's time. On platforms without a libsodium binary, OpenSSL verifies: slower,
 * but equally strict.
 *
 * @throws OperatorError when the libsodium binary verifies incorrectly
 */
export async function bulkVerification(
  load: Load<'crypto_sign_verify_detached'> = loadSodium,
): Promise<BulkVerification> {
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

export const brokenBinary = (what: string): OperatorError =>
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
