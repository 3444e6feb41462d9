import { sign as nodeSign, createPrivateKey, generateKeyPairSync } from 'node:crypto';
import { Point } from '@noble/ed25519';
import { describe, expect, it } from 'vitest';
import { concat, fromHex, toHex, utf8 } from '#protocol/bytes';
import { nobleVerify, strictEd25519 } from '#protocol/ed25519';
import { nativeVerify } from '#runtime/crypto/node';
import { bulkVerification } from '#runtime/crypto/sodium';
import rfc8032 from '../vectors/rfc8032.json' with { type: 'json' };
import { withFlippedBit } from '../fixtures/leaves.js';

// test/protocol/offline.test.ts covers torsion, small R and S + L with every implementation.

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

const { privateKey, publicKey } = generateKeyPairSync('ed25519');
const a = new Uint8Array(publicKey.export({ format: 'der', type: 'spki' }).subarray(-32));
/** The checks that need no elliptic curve arithmetic. */
const yes = strictEd25519(() => true);

it.each(rfc8032)(
  'test vectors of RFC 8032 section 7.1 > verify, and are reproduced: $name',
  (vector) => {
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
  },
);

describe('Ed25519 implementations', () => {
  it('agree on ordinary signatures, and on each signature with a flipped bit', () => {
    expect(bulk.library).toBe('libsodium');
    for (let i = 0; i < 4; i++) {
      const message = utf8(`message ${i}`);
      const signature = new Uint8Array(nodeSign(null, message, privateKey));
      expect(verdict(a, message, signature)).toBe(true);
      for (let bit = 0; bit < 64 * 8; bit += 23) {
        expect(verdict(a, message, withFlippedBit(signature, bit))).toBe(false);
        expect(verdict(withFlippedBit(a, bit % 256), message, signature)).toBe(false);
      }
    }
  });

  it('reject keys and signatures of the wrong length', () => {
    const signature = new Uint8Array(nodeSign(null, utf8('m'), privateKey));
    expect(verdict(a.slice(1), utf8('m'), signature)).toBe(false);
    expect(verdict(concat(a, a), utf8('m'), signature)).toBe(false);
    expect(verdict(a, utf8('m'), signature.slice(0, 63))).toBe(false);
    expect(verdict(a, utf8('m'), concat(signature, Uint8Array.of(0)))).toBe(false);
  });

  it('reject S ≥ L, and small-order points as key and as R', () => {
    expect(yes(a, utf8('m'), concat(a, littleEndian(L)))).toBe(false);
    expect(yes(a, utf8('m'), concat(a, littleEndian(L - 1n)))).toBe(true);
    const order8 = Point.fromHex(
      '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
      false,
    );
    for (let i = 0, point = Point.ZERO; i < 8; i++, point = point.add(order8)) {
      expect(yes(point.toBytes(), utf8('m'), concat(a, littleEndian(1n)))).toBe(false);
      expect(yes(a, utf8('m'), concat(point.toBytes(), littleEndian(1n)))).toBe(false);
    }
  });

  it('reject every encoding with y ≥ p and both encodings of x = 0, as key and as R', () => {
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
