import { fromUtf8 } from '../../protocol/bytes.js';
import { canonicalBytes } from '../../protocol/canonical-json.js';
import { ProtocolError } from '../../protocol/errors.js';
import { hashHex, nobleSha256 } from '../../protocol/hash.js';
import type { JsonValue } from '../../protocol/json.js';
import { SdkError } from '../errors.js';
import type { Answer } from '../http/attempt.js';
import type { Deadline } from '../http/deadline.js';
import type { Engine, EngineRequest } from './engine.js';

/**
 * What was asked and what was answered, each under a hash that anybody can take again: kept, it says
 * later which question an answer belongs to. It is signed by nobody.
 */
export interface RequestHashEnvelope<T> {
  /** SHA-256 of `canonical_request`, 64 lower-case hex characters. */
  request_hash: string;
  /**
   * RFC 8785 text. Of a POST the body, as it was sent; of a GET `{"method":"GET","path":…,"query":{…}}`
   * with the path from `/v1` on, so that it is the same wherever the engine is.
   */
  canonical_request: string;
  /** SHA-256 of the answer's bytes as they came, 64 lower-case hex characters. */
  response_hash: string;
  /** `X-Request-Id` of the answer, which the operator can find it by; null without one. */
  request_id: string | null;
  /** The engine's answer as it is. */
  response: T;
}

/** Asks for a document that nothing but a 200 can be, and puts question and answer together. */
export async function enveloped<T>(
  engine: Engine,
  request: EngineRequest,
  deadline: Deadline,
  read: (answer: Answer) => T,
): Promise<RequestHashEnvelope<T>> {
  const canonical = canonicalRequest(request);
  const answer = await engine.read(request, deadline);
  return {
    request_hash: hashHex(nobleSha256, canonical),
    canonical_request: fromUtf8(canonical),
    response_hash: hashHex(nobleSha256, answer.bytes),
    request_id: answer.headers.get('x-request-id'),
    response: read(answer),
  };
}

function canonicalRequest({ method, path, query = {}, body }: EngineRequest): Uint8Array {
  return body ?? canonicalBytes({ method, path, query });
}

/** The body of a POST: RFC 8785, so that its hash is that of the document. `invalid_input`. */
export function canonicalBody(document: object): Uint8Array {
  try {
    return canonicalBytes(document as JsonValue);
  } catch (cause) {
    const pointer = cause instanceof ProtocolError ? (cause.pointer ?? '') : '';
    throw new SdkError('invalid_input', `${pointer || '/'}: has no JSON form`, { pointer, cause });
  }
}
