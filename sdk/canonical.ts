import { utf8 } from '../protocol/bytes.js';
import { canonicalize, type JsonValue } from '../protocol/json.js';
import { ProtocolError } from '../protocol/errors.js';
import { hashHex, nobleSha256 } from '../protocol/hash.js';
import { SdkError } from './errors.js';

/**
 * The RFC 8785 form of a JSON value. Throws `invalid_input` for undefined, a lone surrogate or a
 * number that is not finite.
 */
export function canonicalJson(value: JsonValue): string {
  try {
    return canonicalize(value);
  } catch (cause) {
    const { message, pointer = '' } =
      cause instanceof ProtocolError ? cause : { message: 'has no JSON form' };
    throw new SdkError('invalid_input', `${pointer || '/'}: ${message}`, { pointer, cause });
  }
}

/**
 * A request body: the RFC 8785 form of a document, so that the body has the document's hash. Throws
 * `invalid_input`.
 */
export const canonicalBody = (document: object): Uint8Array =>
  utf8(canonicalJson(document as JsonValue));

/**
 * SHA-256 of the RFC 8785 form, as 64 lower-case hex characters: the form of `arguments_hash`,
 * `result_hash` and `request_hash`. Throws like `canonicalJson`.
 */
export function canonicalHash(value: JsonValue): string {
  return hashHex(nobleSha256, utf8(canonicalJson(value)));
}
