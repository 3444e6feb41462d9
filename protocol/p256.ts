import { etc } from '@noble/ed25519';
import { nobleSha256 } from './hash.js';

const { invert, mod } = etc;

/** A public key of ECDSA with P-256: two coordinates of 32 bytes, big-endian. */
export interface P256Key {
  x: Uint8Array;
  y: Uint8Array;
}

/**
 * Verifies an ECDSA signature with P-256 and SHA-256; `signature` is r ‖ s, 64 bytes. False for
 * malformed input; never throws.
 */
export type P256Verify = (key: P256Key, message: Uint8Array, signature: Uint8Array) => boolean;

/** Field prime, coefficient b, base point and its order (SP 800-186 §3.2.1.3). */
const P = 2n ** 256n - 2n ** 224n + 2n ** 192n + 2n ** 96n - 1n;
const B = 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604bn;
const G: Point = [
  0x6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296n,
  0x4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5n,
];
const N = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;

/** A point of the curve; null is the point at infinity. */
type Point = readonly [x: bigint, y: bigint] | null;

/** ECDSA verification in JavaScript (FIPS 186-5 §6.4.2). Not constant-time: pass public values only. */
export const p256Verify: P256Verify = (key, message, signature) => {
  if (!isOnP256(key) || signature.length !== 2 * COORDINATE_BYTES) return false;
  const q: Point = [bigEndian(key.x), bigEndian(key.y)];
  const r = bigEndian(signature.subarray(0, COORDINATE_BYTES));
  const s = bigEndian(signature.subarray(COORDINATE_BYTES));
  if (r === 0n || r >= N || s === 0n || s >= N) return false;
  const w = invert(s, N);
  const [u, v] = [(bigEndian(nobleSha256(message)) * w) % N, (r * w) % N];
  const both = sum(G, q);
  let point: Point = null;
  for (let bit = 255n; bit >= 0n; bit--) {
    point = sum(point, point);
    const [ofG, ofQ] = [(u >> bit) & 1n, (v >> bit) & 1n];
    if (ofG + ofQ > 0n) point = sum(point, ofG === 0n ? q : ofQ === 0n ? G : both);
  }
  return point !== null && point[0] % N === r;
};

function sum(a: Point, b: Point): Point {
  if (a === null || b === null) return a ?? b;
  const [[x1, y1], [x2, y2]] = [a, b];
  if (x1 === x2 && (y1 + y2) % P === 0n) return null;
  const slope =
    x1 === x2 ? 3n * (x1 * x1 - 1n) * invert(2n * y1, P) : (y2 - y1) * invert(x2 - x1, P);
  const x = mod(slope * slope - x1 - x2, P);
  return [x, mod(slope * (x1 - x) - y1, P)];
}

/** Whether the point is on the curve. A point on another curve allows forged signatures (invalid-curve attack). */
export function isOnP256(key: P256Key): boolean {
  if (key.x.length !== COORDINATE_BYTES || key.y.length !== COORDINATE_BYTES) return false;
  const [x, y] = [bigEndian(key.x), bigEndian(key.y)];
  return x < P && y < P && (y * y - (x * x * x - 3n * x + B)) % P === 0n;
}

const COORDINATE_BYTES = 32;
const SEQUENCE = 0x30;
const INTEGER = 0x02;

/** r ‖ s of an ECDSA signature in DER (RFC 3279 §2.2.3), 64 bytes; null for any other encoding. */
export function fromDer(der: Uint8Array): Uint8Array | null {
  if (der[0] !== SEQUENCE || der[1] !== der.length - 2) return null;
  const signature = new Uint8Array(2 * COORDINATE_BYTES);
  let at = 2;
  for (const end of [COORDINATE_BYTES, 2 * COORDINATE_BYTES]) {
    const length = der[at + 1] ?? 0;
    const integer = der.subarray(at + 2, at + 2 + length);
    if (der[at] !== INTEGER || integer.length !== length || !isShortestPositive(integer))
      return null;
    const digits = integer[0] === 0 ? integer.subarray(1) : integer;
    if (digits.length > COORDINATE_BYTES) return null;
    signature.set(digits, end - digits.length);
    at += 2 + length;
  }
  return at === der.length ? signature : null;
}

function isShortestPositive(integer: Uint8Array): boolean {
  const [first = 0, second = 0] = integer;
  return first === 0 ? integer.length > 1 && second >= 0x80 : first < 0x80;
}

function bigEndian(bytes: Uint8Array): bigint {
  return bytes.reduce((value, byte) => (value << 8n) | BigInt(byte), 0n);
}
