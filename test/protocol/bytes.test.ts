import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  fromBase64,
  fromBase64Url,
  fromHex,
  fromUtf8,
  toBase64,
  toBase64Url,
  toHex,
  utf8,
} from '#protocol/bytes';
import { nativeBase64 } from '#runtime/crypto/node';
import { refusal } from '../fixtures/refusal.js';

describe('hex and base64url functions', () => {
  it('agree with Node on every byte string and survive a round trip', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 80 }), (bytes) => {
        const buffer = Buffer.from(bytes);
        expect(toHex(bytes)).toBe(buffer.toString('hex'));
        expect(toBase64(bytes)).toBe(buffer.toString('base64'));
        expect(nativeBase64(bytes)).toBe(toBase64(bytes));
        expect(nativeBase64(buffer.subarray(1))).toBe(toBase64(bytes.slice(1)));
        expect(toBase64Url(bytes)).toBe(buffer.toString('base64url'));
        expect(fromHex(toHex(bytes))).toEqual(bytes);
        expect(fromBase64(toBase64(bytes))).toEqual(bytes);
        expect(fromBase64Url(toBase64Url(bytes))).toEqual(bytes);
      }),
    );
  });

  it.each(['0', 'AB', '0x', ' 0', 'g0'])('reject the hex text %j', (text) => {
    expect(refusal(() => fromHex(text)).code).toBe('malformed_hex');
  });

  it.each(['A', 'AAAAA', 'AB', 'AA==', 'A+'])('reject the base64url text %j', (text) => {
    expect(refusal(() => fromBase64Url(text)).code).toBe('malformed_base64');
  });

  it('reject text and bytes that are not Unicode, and keep a byte order mark', () => {
    expect(refusal(() => utf8('a\ud800')).code).toBe('lone_surrogate');
    expect(refusal(() => fromUtf8(Uint8Array.of(0xff))).code).toBe('invalid_utf8');
    expect(fromUtf8(Uint8Array.of(0xef, 0xbb, 0xbf, 0x61))).toBe('\ufeffa');
    expect(utf8('é😀')).toEqual(new Uint8Array(Buffer.from('é😀')));
  });
});
