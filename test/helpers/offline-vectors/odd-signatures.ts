import { Point } from '@noble/ed25519';
import { sha512 } from '@noble/hashes/sha2.js';
import { concat, fromHex, toHex } from '#protocol/bytes';

/** Signatures that implementations disagree about, made with the secret scalar of a test seed. */

const L = Point.CURVE().n;
const P = Point.CURVE().p;
const R_SCALAR = 31n;

/** Of order 8. */
export const ORDER_8 = Point.fromHex(
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  false,
);

export function littleEndian(value: bigint): Uint8Array {
  return fromHex(value.toString(16).padStart(64, '0')).reverse();
}

function number(bytes: Uint8Array): bigint {
  return BigInt(`0x${toHex(Uint8Array.from(bytes).reverse())}`);
}

/** The secret scalar of a seed (RFC 8032 §5.1.5). */
function scalarOf(seed: string): bigint {
  const half = sha512(fromHex(seed)).slice(0, 32);
  half[0]! &= 248;
  half[31] = (half[31]! & 127) | 64;
  return number(half);
}

export function challenge(r: Uint8Array, a: Uint8Array, message: Uint8Array): bigint {
  return number(sha512(concat(r, a, message))) % L;
}

interface Signer {
  seed: string;
  publicKey: Uint8Array;
}

/** S = r + k·a for any encoding of R, whether or not it is that of rB. */
function signedWith(
  { seed, publicKey }: Signer,
  message: Uint8Array,
  r: Uint8Array,
  rScalar: bigint,
): Uint8Array {
  const s = (rScalar + challenge(r, publicKey, message) * scalarOf(seed)) % L;
  return concat(r, littleEndian(s));
}

type Odd = (signer: Signer, message: Uint8Array) => Uint8Array;
const rPoint = Point.BASE.multiply(R_SCALAR);

export const oddSignatures: [name: string, about: string, make: Odd][] = [
  [
    's-not-below-l',
    'L was added to S: the same equation holds, and a signature has a second spelling.',
    (signer, message) => {
      const good = signedWith(signer, message, rPoint.toBytes(), R_SCALAR);
      return concat(good.slice(0, 32), littleEndian(number(good.slice(32)) + L));
    },
  ],
  [
    'small-order-r',
    'R is the identity: the equation holds, only the rule against small order refuses it.',
    (signer, message) => signedWith(signer, message, Point.ZERO.toBytes(), 0n),
  ],
  [
    'small-order-8-r',
    'R is of order 8: the equation holds when multiplied by the cofactor.',
    (signer, message) => signedWith(signer, message, ORDER_8.toBytes(), 0n),
  ],
  [
    'r-not-canonical',
    'R is the identity in an encoding with y = p + 1.',
    (signer, message) => signedWith(signer, message, littleEndian(P + 1n), 0n),
  ],
  [
    'r-with-torsion',
    'R has a part of order 8: the equation holds when multiplied by the cofactor, and not without.',
    (signer, message) => signedWith(signer, message, rPoint.add(ORDER_8).toBytes(), R_SCALAR),
  ],
  ['zero-signature', 'All bytes are zero.', () => new Uint8Array(64)],
];

/** A key with a torsion part, and a signature that only an equation with the cofactor accepts. */
export function torsionKey({ seed, publicKey }: Signer): {
  publicKey: Uint8Array;
  sign(message: Uint8Array): Uint8Array;
} {
  const mixed = Point.fromBytes(publicKey, false).add(ORDER_8).toBytes();
  return {
    publicKey: mixed,
    sign: (message) => {
      for (let rScalar = 1n; ; rScalar++) {
        const r = Point.BASE.multiply(rScalar).toBytes();
        // With k a multiple of 8 the torsion part vanishes and both equations hold.
        if (challenge(r, mixed, message) % 8n === 0n) continue;
        return signedWith({ seed, publicKey: mixed }, message, r, rScalar);
      }
    },
  };
}

/** Under a key of small order: with k a multiple of its order, sB is an R that anyone can make. */
export function signedByNobody(publicKey: Uint8Array, message: Uint8Array): Uint8Array {
  for (let s = 1n; ; s++) {
    const r = Point.BASE.multiply(s).toBytes();
    if (challenge(r, publicKey, message) % 8n === 0n) return concat(r, littleEndian(s));
  }
}
