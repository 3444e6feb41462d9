import { fromBase64Url, toBase64Url } from './bytes.js';
import { attempt } from './errors.js';
import type { Sha256 } from './hash.js';

/**
 * An engine key: `svc_sk_<id>_<secret><crc>`.
 *
 * - id: 12 characters of [a-z0-9], public, identifies the row with the secret's hash;
 * - secret: 43 base64url characters, 32 random bytes;
 * - crc: CRC-32 (IEEE) of everything before it, 6 base62 digits, most significant first.
 *
 * The checksum does not stop an attacker. It lets a secret scanner recognize a leaked key offline,
 * and separates a typing error from a wrong key.
 */
export const API_KEY_PATTERN = /^svc_sk_([a-z0-9]{12})_([A-Za-z0-9_-]{43})([0-9A-Za-z]{6})$/;

export const API_KEY_ID_PATTERN = /^[a-z0-9]{12}$/;

export interface ApiKey {
  keyId: string;
  /** 32 bytes */
  secret: Uint8Array;
}

const SECRET_BYTES = 32;
const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const BASE32 = 'abcdefghijklmnopqrstuvwxyz234567';

/** Parses a key; null unless form, checksum and base64url encoding are exact. */
export function parseApiKey(text: string): ApiKey | null {
  const match = API_KEY_PATTERN.exec(text);
  if (match === null) return null;
  const [, keyId = '', secretText = '', crc = ''] = match;
  if (checksum(text.slice(0, -crc.length)) !== crc) return null;
  const secret = attempt(() => fromBase64Url(secretText));
  return secret === undefined ? null : { keyId, secret };
}

/** @throws RangeError when the id or the secret is malformed */
export function formatApiKey({ keyId, secret }: ApiKey): string {
  if (!API_KEY_ID_PATTERN.test(keyId)) throw new RangeError('key id: 12 characters of [a-z0-9]');
  if (secret.length !== SECRET_BYTES) throw new RangeError(`secret: ${SECRET_BYTES} bytes`);
  const text = `svc_sk_${keyId}_${toBase64Url(secret)}`;
  return text + checksum(text);
}

/** A new key's id from at least 8 random bytes: 60 bits in base32, so every character is unbiased. */
export function apiKeyIdFrom(random: Uint8Array): string {
  if (random.length < 8) throw new RangeError('key id: at least 8 random bytes');
  let bits = 0n;
  for (const byte of random.subarray(0, 8)) bits = (bits << 8n) | BigInt(byte);
  let id = '';
  for (let i = 0n; i < 12n; i++) id += BASE32[Number((bits >> (i * 5n)) & 31n)] ?? '';
  return id;
}

/** The stored hash of the secret. 256 random bits need no salt and no slow hash. */
export function apiKeySecretHash(sha256: Sha256, secret: Uint8Array): Uint8Array {
  return sha256(secret);
}

function checksum(text: string): string {
  let rest = crc32(text);
  let digits = '';
  for (let i = 0; i < 6; i++) {
    digits = (BASE62[rest % 62] ?? '') + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}

/** CRC-32 as in ISO 3309 and zip, of ASCII text, as an unsigned number. */
function crc32(text: string): number {
  let crc = 0xffffffff;
  for (let i = 0; i < text.length; i++) {
    crc ^= text.charCodeAt(i);
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}
