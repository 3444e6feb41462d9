import { sha256 } from '@noble/hashes/sha2.js';
import { toHex } from './bytes.js';
import { canonicalBytes } from './canonical-json.js';
import type { JsonValue } from './json.js';

/** SHA-256 of the bytes, 32 bytes. Servers pass the native one, browsers {@link nobleSha256}. */
export type Sha256 = (data: Uint8Array) => Uint8Array;

export const nobleSha256: Sha256 = (data) => sha256(data);

/** Lower-case hex SHA-256, without a domain tag. */
export function hashHex(digest: Sha256, bytes: Uint8Array): string {
  return toHex(digest(bytes));
}

/** What every `*_hash` field holds: the hash of a document's RFC 8785 bytes. */
export function documentHash(digest: Sha256, document: JsonValue): string {
  return hashHex(digest, canonicalBytes(document));
}
