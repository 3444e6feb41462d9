import { randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { fromBase64Url, toBase64Url } from '#protocol/bytes';
import { attempt } from '#protocol/errors';
import { API_KEY_ID_PATTERN, API_KEY_PATTERN } from '#protocol/schemas/api-keys';
import { nativeSha256 } from './node.js';

export interface ApiKey {
  keyId: string;
  /** 32 bytes */
  secret: Uint8Array;
}

const SECRET_BYTES = 32;
const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const BASE32 = 'abcdefghijklmnopqrstuvwxyz234567';

/** A new API key: its text for the caller, and its id and hash for the database. The id has 60 random bits. */
export function newApiKey(): { keyId: string; secretHash: Uint8Array; text: string } {
  const keyId = Array.from(randomBytes(12), (byte) => BASE32[byte & 31]).join('');
  const secret = randomBytes(SECRET_BYTES);
  return { keyId, secretHash: apiKeySecretHash(secret), text: formatApiKey({ keyId, secret }) };
}

/** Parses a key; null if its form, checksum or base64url encoding is invalid. */
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

/** The stored hash of the secret. 256 random bits need no salt and no slow hash. */
export const apiKeySecretHash = (secret: Uint8Array): Uint8Array => nativeSha256(secret);

function checksum(text: string): string {
  let rest = crc32(text);
  let digits = '';
  for (let i = 0; i < 6; i++) {
    digits = (BASE62[rest % 62] ?? '') + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}
