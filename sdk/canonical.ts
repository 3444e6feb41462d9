import { canonicalBytes, canonicalize } from '../protocol/canonical-json.js';
import { hashHex, nobleSha256 } from '../protocol/hash.js';
import type { JsonValue } from '../protocol/json.js';

/**
 * The RFC 8785 form of a JSON value. Throws `ProtocolError` for what has none: undefined, a lone
 * surrogate, a number that is not finite.
 */
export function canonicalJson(value: JsonValue): string {
  return canonicalize(value);
}

/**
 * SHA-256 of the RFC 8785 form, 64 lower-case hex characters: what `arguments_hash`, `result_hash`
 * and `request_hash` are. Throws like `canonicalJson`.
 */
export function canonicalHash(value: JsonValue): string {
  return hashHex(nobleSha256, canonicalBytes(value));
}
