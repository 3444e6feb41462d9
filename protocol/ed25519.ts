import { Point } from '@noble/ed25519';
import { sha512 } from '@noble/hashes/sha2.js';
import { concat, equalBytes } from './bytes.js';
import { attempt } from './errors.js';

/**
 * Verifies an Ed25519 signature (RFC 8032 §5.1.7): public key 32 bytes, signature 64 bytes. False
 * for malformed input; never throws.
 */
export type Ed25519Verify = (
  publicKey: Uint8Array,
  message: Uint8Array,
  signature: Uint8Array,
) => boolean;

/**
 * Field prime, order of the base point, and one of the two y coordinates of the points of order 8.
 */
const P = 2n ** 255n - 19n;
const L = 2n ** 252n + 27742317777372353535851937790883648493n;
const Y_ORDER_8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022n;
/** y of all points whose order divides 8: the identity and the points of order 2, 4 and 8. */
const SMALL_ORDER_Y = [1n, P - 1n, 0n, Y_ORDER_8, P - Y_ORDER_8].map(littleEndian);
const P_BYTES = littleEndian(P);
const L_BYTES = littleEndian(L);

/**
 * Restricts a cofactorless verification to signatures on which all implementations agree: A and R
 * in canonical encoding (y < p) and not of small order, S < L. Implementations differ in which of
 * these conditions they check.
 */
export function strictEd25519(raw: Ed25519Verify): Ed25519Verify {
  return (publicKey, message, signature) => {
    if (publicKey.length !== 32 || signature.length !== 64) return false;
    const r = signature.subarray(0, 32);
    const s = signature.subarray(32);
    if (!isOrdinaryPoint(publicKey) || !isOrdinaryPoint(r) || !isBelow(s, L_BYTES)) return false;
    return raw(publicKey, message, signature);
  };
}

/**
 * Strict verification in JavaScript, which recomputes R = [S]B − [k]A and compares its bytes, as native implementations
 * do; the library's own verification multiplies by the cofactor and so accepts an R with a torsion component.
 */
export const nobleVerify: Ed25519Verify = strictEd25519((publicKey, message, signature) => {
  try {
    const a = Point.fromBytes(publicKey, false);
    const r = signature.subarray(0, 32);
    const s = fromLittleEndian(signature.subarray(32));
    const k = fromLittleEndian(sha512(concat(r, publicKey, message))) % L;
    const recomputed = Point.BASE.multiply(s, false).subtract(a.multiply(k, false));
    return equalBytes(recomputed.toBytes(), r);
  } catch {
    return false;
  }
});

/**
 * Whether signatures can verify under a public key of 32 bytes: canonical encoding, not of small
 * order. Under a key of small order one signature verifies for every message.
 */
export function isUsablePublicKey(publicKey: Uint8Array): boolean {
  return publicKey.length === 32 && isOrdinaryPoint(publicKey);
}

export function isPoint(encoded: Uint8Array): boolean {
  return attempt(() => Point.fromBytes(encoded, false)) !== undefined;
}

/** Every encoding of a point of small order, non-canonical ones included. */
export function smallOrderPublicKeys(): Uint8Array[] {
  return [...SMALL_ORDER_Y, ...[P, P + 1n].map(littleEndian)].flatMap((y) => {
    const negative = Uint8Array.from(y);
    negative[31]! |= 0x80;
    return [y, negative];
  });
}

/** Whether the encoding is canonical and not of small order. Does not decode the point. */
function isOrdinaryPoint(encoded: Uint8Array): boolean {
  // Copies the bytes: `slice` of a Node Buffer would share the caller's memory.
  const y = Uint8Array.from(encoded);
  // The top bit is the sign of x. A point with x = 0 has small order, so it is rejected below for either sign.
  y[31]! &= 0x7f;
  return isBelow(y, P_BYTES) && !SMALL_ORDER_Y.some((small) => equalBytes(small, y));
}

function isBelow(a: Uint8Array, b: Uint8Array): boolean {
  for (let i = a.length - 1; i >= 0; i--) {
    if (a[i] !== b[i]) return a[i]! < b[i]!;
  }
  return false;
}

function littleEndian(value: bigint): Uint8Array {
  const bytes = new Uint8Array(32);
  for (let i = 0, rest = value; i < 32; i++, rest >>= 8n) bytes[i] = Number(rest & 0xffn);
  return bytes;
}

function fromLittleEndian(bytes: Uint8Array): bigint {
  let value = 0n;
  for (let i = bytes.length - 1; i >= 0; i--) value = (value << 8n) | BigInt(bytes[i]!);
  return value;
}
