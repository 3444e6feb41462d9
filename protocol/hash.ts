import { sha256 } from '@noble/hashes/sha2.js';
import { toHex, utf8 } from './bytes.js';
import { canonicalBytes } from './canonical-json.js';
import type { JsonValue } from './json.js';

/**
 * SHA-256 of the bytes, 32 bytes. Servers pass the native implementation, browsers {@link
 * nobleSha256}.
 */
export interface Sha256 {
  (data: Uint8Array): Uint8Array;
  /** The same in lower-case hex, of bytes or ASCII text, if the platform has a faster call. */
  hex?: (data: Uint8Array | string) => string;
}

export const nobleSha256: Sha256 = (data) => sha256(data);

/** Lower-case hex SHA-256, without a domain tag. */
export function hashHex(digest: Sha256, bytes: Uint8Array): string {
  return digest.hex === undefined ? toHex(digest(bytes)) : digest.hex(bytes);
}

export function asciiHashHex(digest: Sha256, text: string): string {
  return digest.hex === undefined ? toHex(digest(utf8(text))) : digest.hex(text);
}

/** The value of every `*_hash` field: the hash of a document's RFC 8785 bytes. */
export function documentHash(digest: Sha256, document: JsonValue): string {
  return hashHex(digest, canonicalBytes(document));
}
