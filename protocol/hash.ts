import { sha256 } from '@noble/hashes/sha2.js';
import { toHex, utf8 } from './bytes.js';
import { canonicalize, type JsonValue } from './json.js';

/**
 * SHA-256 of the bytes, 32 bytes. Servers pass the native implementation, browsers {@link
 * nobleSha256}.
 */
export interface Sha256 {
  (data: Uint8Array): Uint8Array;
  /** The hex digest of bytes, or of text as UTF-8, if the platform has a faster call for it. */
  hex?: (data: Uint8Array | string) => string;
}

export const nobleSha256: Sha256 = (data) => sha256(data);

/** Lower-case hex SHA-256, without a domain tag, of bytes or of text as UTF-8. */
export function hashHex(digest: Sha256, data: Uint8Array | string): string {
  if (digest.hex !== undefined) return digest.hex(data);
  return toHex(digest(typeof data === 'string' ? utf8(data) : data));
}

/** The value of every `*_hash` field: the hash of a document's RFC 8785 bytes. */
export function documentHash(digest: Sha256, document: JsonValue): string {
  return hashHex(digest, canonicalize(document));
}
