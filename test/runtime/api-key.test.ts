import { randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { API_KEY_PATTERN } from '#protocol/schemas/api-keys';
import { formatApiKey, parseApiKey } from '#runtime/crypto/api-key';

const secret = Uint8Array.from({ length: 32 }, (_, i) => i);
const KEY = 'svc_sk_abcdefghij23_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8';

function base62(value: number): string {
  const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
  let text = '';
  for (let rest = value, i = 0; i < 6; i++, rest = Math.floor(rest / 62)) {
    text = digits[rest % 62]! + text;
  }
  return text;
}

describe('API keys', () => {
  it('have the documented format, with the CRC-32 that zip uses', () => {
    const key = formatApiKey({ keyId: 'abcdefghij23', secret });
    expect(key).toBe(KEY + base62(crc32(KEY)));
    expect(key).toMatch(API_KEY_PATTERN);
    expect(key).toHaveLength(69);
    expect(parseApiKey(key)).toEqual({ keyId: 'abcdefghij23', secret });
  });

  it('are rejected when any one character is changed', () => {
    const key = formatApiKey({ keyId: 'abcdefghij23', secret: randomBytes(32) });
    for (let i = 0; i < key.length; i++) {
      const other = key[i] === 'x' ? 'y' : 'x';
      expect(parseApiKey(key.slice(0, i) + other + key.slice(i + 1))).toBeNull();
    }
  });

  it.each([
    ['another prefix', `svc_pk_${'a'.repeat(12)}_${'A'.repeat(43)}000000`],
    ['text around it', ` ${formatApiKey({ keyId: 'abcdefghij23', secret })}`],
    ['a line after it', `${formatApiKey({ keyId: 'abcdefghij23', secret })}\n`],
  ])('are rejected when parsed from %s', (_, text) => {
    expect(parseApiKey(text)).toBeNull();
  });

  it('are rejected when the secret has a non-canonical encoding', () => {
    // The last character of 32 bytes carries two unused bits, which must be zero.
    const text = KEY.slice(0, -1) + '9';
    expect(parseApiKey(text + base62(crc32(text)))).toBeNull();
  });
});
