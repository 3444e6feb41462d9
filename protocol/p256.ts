import { p256 } from '@noble/curves/nist.js';
import { concat } from './bytes.js';

/** A public key of ECDSA with P-256: two coordinates of 32 bytes, big-endian. */
export interface P256Key {
  x: Uint8Array;
  y: Uint8Array;
}

/**
 * Verifies an ECDSA signature with P-256 and SHA-256 (FIPS 186-5 §6.4.2); `signature` is r ‖ s, 64 bytes.
 * False for malformed input; never throws.
 */
export type P256Verify = (key: P256Key, message: Uint8Array, signature: Uint8Array) => boolean;

/** Verifies in JavaScript. */
export const p256Verify: P256Verify = (key, message, signature) =>
  isOnP256(key) &&
  signature.length === 64 &&
  p256.verify(signature, message, uncompressed(key), { lowS: false });

/** Whether the point is on the curve. A point on another curve allows forged signatures (invalid-curve attack). */
export function isOnP256(key: P256Key): boolean {
  return resultOf(() => p256.Point.fromBytes(uncompressed(key))) !== null;
}

/** SEC 1 §2.3.3 */
const uncompressed = ({ x, y }: P256Key) => concat(Uint8Array.of(4), x, y);

/** r ‖ s of an ECDSA signature in DER (RFC 3279 §2.2.3), 64 bytes; null for any other encoding. */
export function fromDer(der: Uint8Array): Uint8Array | null {
  return resultOf(() => p256.Signature.fromBytes(der, 'der').toBytes('compact'));
}

/** The library throws for malformed input. */
function resultOf<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    return null;
  }
}
