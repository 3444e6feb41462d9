import {
  sign as nodeSign,
  createPrivateKey,
  generateKeyPairSync,
  randomBytes,
  randomInt,
} from 'node:crypto';
import { Point } from '@noble/ed25519';
import { sha512 } from '@noble/hashes/sha2.js';
import { describe, expect, it } from 'vitest';
import { concat, fromHex, toHex, utf8 } from '#protocol/bytes';
import { nobleVerify, strictEd25519, type Ed25519Verify } from '#protocol/ed25519';
import { nativeVerify } from '#runtime/crypto/node';
import { bulkVerification } from '#runtime/crypto/sodium';
import rfc8032 from '../vectors/rfc8032.json' with { type: 'json' };

const P = Point.CURVE().p;
const L = Point.CURVE().n;

const bulk = await bulkVerification();

/** The common verdict of all implementations. */
function verdict(publicKey: Uint8Array, message: Uint8Array, signature: Uint8Array): boolean {
  const native = nativeVerify(publicKey, message, signature);
  expect(nobleVerify(publicKey, message, signature)).toBe(native);
  expect(bulk.verify(publicKey, message, signature)).toBe(native);
  return native;
}

function littleEndian(value: bigint): Uint8Array {
  return fromHex(value.toString(16).padStart(64, '0')).reverse();
}

function number(bytes: Uint8Array): bigint {
  return BigInt(`0x${toHex(Uint8Array.from(bytes).reverse())}`);
}

function challenge(r: Uint8Array, a: Uint8Array, message: Uint8Array): bigint {
  return number(sha512(concat(r, a, message))) % L;
}

/** A signature by the secret scalar for any encodings of R and A: S = r + k·a. */
function signAs(options: {
  rScalar: bigint;
  r: Uint8Array;
  aScalar: bigint;
  a: Uint8Array;
  message: Uint8Array;
}): Uint8Array {
  const { rScalar, r, aScalar, a, message } = options;
  const s = (rScalar + challenge(r, a, message) * aScalar) % L;
  return concat(r, littleEndian(s));
}

/** The eight points whose order divides the cofactor, made from one of order eight. */
const order8 = Point.fromHex(
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  false,
);
const torsion: Point[] = [Point.ZERO];
while (torsion.length < 8) torsion.push(torsion[torsion.length - 1]!.add(order8));

const aScalar = 0x1234567890abcdef1234567890abcdefn;
const A = Point.BASE.multiply(aScalar);
const a = A.toBytes();
const messages = Array.from({ length: 24 }, (_, i) => utf8(`message ${i}`));

describe('RFC 8032 section 7.1', () => {
  it.each(rfc8032)('$name', (vector) => {
    const publicKey = fromHex(vector.public_key);
    const message = fromHex(vector.message);
    const signature = fromHex(vector.signature);
    expect(verdict(publicKey, message, signature)).toBe(true);
    expect(verdict(publicKey, concat(message, Uint8Array.of(0)), signature)).toBe(false);
    const seed = Buffer.concat([
      Buffer.from('302e020100300506032b657004220420', 'hex'),
      fromHex(vector.seed),
    ]);
    const key = createPrivateKey({ key: seed, format: 'der', type: 'pkcs8' });
    expect(toHex(nodeSign(null, message, key))).toBe(vector.signature);
  });
});

describe('Ed25519 implementations', () => {
  it('agree on ordinary signatures, and on each with a flipped bit', () => {
    for (const message of messages.slice(0, 4)) {
      const signature = signAs({
        rScalar: 77n,
        r: Point.BASE.multiply(77n).toBytes(),
        aScalar,
        a,
        message,
      });
      expect(verdict(a, message, signature)).toBe(true);
      for (let bit = 0; bit < 64 * 8; bit += 23) {
        const turned = signature.slice();
        turned[bit >> 3]! ^= 1 << (bit & 7);
        expect(verdict(a, message, turned)).toBe(false);
        const turnedKey = a.slice();
        turnedKey[(bit >> 3) % 32]! ^= 1 << (bit & 7);
        expect(verdict(turnedKey, message, signature)).toBe(false);
      }
    }
  });

  it('agree with the native ones on thousands of valid and nearly valid signatures', () => {
    expect(bulk.library).toBe('libsodium');
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    const key = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
    const seen = { true: 0, false: 0 };
    for (let i = 0; i < 4000; i++) {
      const parts = [key, randomBytes(randomInt(1, 300))];
      parts.push(nodeSign(null, parts[1]!, privateKey));
      // Unchanged, or one bit or byte of the key, message or signature changed.
      const turned = Buffer.from(parts[i % 3]!);
      turned[randomInt(turned.length)]! ^= [0, 1 << randomInt(8), randomInt(256)][i % 4] ?? 0;
      parts[i % 3] = turned;
      const [a, message, signature] = parts as [Buffer, Buffer, Buffer];
      const found = nativeVerify(a, message, signature);
      expect(bulk.verify(a, message, signature)).toBe(found);
      seen[`${found}`]++;
    }
    expect(Math.min(seen.true, seen.false)).toBeGreaterThan(1000);
  });

  it('reject other lengths', () => {
    const signature = signAs({
      rScalar: 5n,
      r: Point.BASE.multiply(5n).toBytes(),
      aScalar,
      a,
      message: utf8('m'),
    });
    expect(verdict(a, utf8('m'), signature)).toBe(true);
    expect(verdict(a.slice(1), utf8('m'), signature)).toBe(false);
    expect(verdict(concat(a, a), utf8('m'), signature)).toBe(false);
    expect(verdict(a, utf8('m'), signature.slice(0, 63))).toBe(false);
    expect(verdict(a, utf8('m'), concat(signature, Uint8Array.of(0)))).toBe(false);
  });

  it('reject S + L, which satisfies the same equation', () => {
    const message = utf8('m');
    const r = Point.BASE.multiply(5n).toBytes();
    const signature = signAs({ rScalar: 5n, r, aScalar, a, message });
    const s = number(signature.slice(32));
    for (const forged of [s + L, L]) {
      expect(verdict(a, message, concat(r, littleEndian(forged)))).toBe(false);
    }
    // Only the bound rejects it.
    expect(strictEd25519(() => true)(a, message, concat(r, littleEndian(L)))).toBe(false);
    expect(strictEd25519(() => true)(a, message, concat(r, littleEndian(L - 1n)))).toBe(true);
  });

  it.each(torsion.map((point, i) => [i, point] as const))(
    'reject the key that is %i times the point of order 8, which verifies forgeries',
    (_, point) => {
      const small = point.toBytes();
      for (const message of messages) {
        // With k a multiple of 8, kA vanishes and R = sB verifies without a private key.
        const r = Point.BASE.multiply(99n).toBytes();
        if (challenge(r, small, message) % 8n !== 0n) continue;
        expect(verdict(small, message, concat(r, littleEndian(99n)))).toBe(false);
      }
      expect(strictEd25519(() => true)(small, utf8('m'), concat(a, littleEndian(1n)))).toBe(false);
    },
  );

  it.each(torsion.map((point, i) => [i, point] as const))(
    'reject the R that is %i times the point of order 8',
    (i, point) => {
      const r = point.toBytes();
      const signature = signAs({ rScalar: 0n, r, aScalar, a, message: utf8('m') });
      // The identity as R satisfies the equation; only the rule against small order refuses it.
      if (i === 0) expect(equation(a, utf8('m'), signature)).toBe(true);
      expect(verdict(a, utf8('m'), signature)).toBe(false);
      expect(strictEd25519(() => true)(a, utf8('m'), signature)).toBe(false);
    },
  );

  it('reject every encoding with y ≥ p and both encodings of x = 0, as key and as R', () => {
    const yes = strictEd25519(() => true);
    const s = littleEndian(1n);
    for (let y = P; y < 2n ** 255n; y++) {
      for (const sign of [0n, 2n ** 255n]) {
        const encoded = littleEndian(y + sign);
        expect(yes(encoded, utf8('m'), concat(a, s))).toBe(false);
        expect(yes(a, utf8('m'), concat(encoded, s))).toBe(false);
        expect(verdict(encoded, utf8('m'), concat(a, s))).toBe(false);
      }
    }
    for (const y of [1n, P - 1n]) {
      const minusZero = littleEndian(y + 2n ** 255n);
      expect(yes(minusZero, utf8('m'), concat(a, s))).toBe(false);
      expect(yes(a, utf8('m'), concat(minusZero, s))).toBe(false);
    }
    expect(yes(a, utf8('m'), concat(a, s))).toBe(true);
  });

  it('reject the R that differs only in the sign of x', () => {
    const message = utf8('m');
    const point = Point.BASE.multiply(31n);
    const [r, opposite] = [point.toBytes(), point.negate().toBytes()];
    // With the scalar of one and the encoding of the other, y is correct.
    const signed = { rScalar: 31n, aScalar, a, message };
    expect(verdict(a, message, signAs({ ...signed, r }))).toBe(true);
    expect(verdict(a, message, signAs({ ...signed, r: opposite }))).toBe(false);
  });

  it('reject an R with a torsion component, which cofactored verification accepts', () => {
    for (const part of torsion.slice(1)) {
      const r = Point.BASE.multiply(31n).add(part).toBytes();
      const signature = signAs({ rScalar: 31n, r, aScalar, a, message: utf8('m') });
      expect(cofactored(a, utf8('m'), signature)).toBe(true);
      expect(verdict(a, utf8('m'), signature)).toBe(false);
    }
  });

  it('use the cofactorless equation for keys with a torsion component', () => {
    const seen = new Set<boolean>();
    const mixed = A.add(order8).toBytes();
    const r = Point.BASE.multiply(31n).toBytes();
    for (const message of messages) {
      const signature = signAs({ rScalar: 31n, r, aScalar, a: mixed, message });
      const found = verdict(mixed, message, signature);
      expect(found).toBe(challenge(r, mixed, message) % 8n === 0n);
      expect(cofactored(mixed, message, signature)).toBe(true);
      seen.add(found);
    }
    expect(seen.size).toBe(2);
  });

  it('do not modify the caller’s bytes, even when they are Buffers', () => {
    const key = Buffer.from(a);
    key[31]! |= 0x80;
    const signature = Buffer.concat([key, littleEndian(1n)]);
    const before = [key.toString('hex'), signature.toString('hex')];
    verdict(key, utf8('m'), signature);
    expect([key.toString('hex'), signature.toString('hex')]).toEqual(before);
  });
});

/** SB = R + kA, without any of the rules of strictness. */
function equation(key: Uint8Array, message: Uint8Array, signature: Uint8Array): boolean {
  return difference(key, message, signature).is0();
}

/** 8SB = 8R + 8kA, the other equation that RFC 8032 allows. */
const cofactored: Ed25519Verify = (key, message, signature) =>
  difference(key, message, signature).clearCofactor().is0();

function difference(key: Uint8Array, message: Uint8Array, signature: Uint8Array): Point {
  const r = signature.slice(0, 32);
  const k = challenge(r, key, message);
  return Point.BASE.multiply(number(signature.slice(32)), false)
    .subtract(Point.fromBytes(r, true))
    .subtract(Point.fromBytes(key, true).multiply(k, false));
}
