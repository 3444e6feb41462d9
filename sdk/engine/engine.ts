import { fromUtf8, toHex } from '../../protocol/bytes.js';
import { hashHex, nobleSha256 } from '../../protocol/hash.js';
import { isProofId } from '../../protocol/ids.js';
import { canonicalBody } from '../canonical.js';
import type { Answer } from '../http/attempt.js';
import { openHttpClient, type HttpClient, type HttpRequest } from '../http/client.js';
import { type EngineOptions, headerValue, invalidInput, parseBaseUrl } from '../options.js';

/** Limit of a response, larger than any document of the engine except the package of a run. */
const MAX_RESPONSE_BYTES = 16 * 1024 * 1024;

/** The engine, with the credentials of one tenant. Validates the options, and opens no connection. */
export function openEngine(
  options: EngineOptions,
  maxResponseBytes = MAX_RESPONSE_BYTES,
): HttpClient {
  const base = parseBaseUrl('engineUrl', options.engineUrl);
  const headers = {
    'X-Svc-Api-Key': headerValue('apiKey', options.apiKey),
    'X-Svc-Tenant-Id': headerValue('tenantId', options.tenantId),
    'svc-api-version': 'v1',
  };
  return openHttpClient(options, base, headers, maxResponseBytes);
}

/** Returns a valid proof id. Throws `invalid_input`: no other text may become part of a path. */
export function requireProofId(text: string): string {
  // Callers in JavaScript may pass an array, whose text could match the pattern.
  if (typeof text === 'string' && isProofId(text)) return text;
  throw invalidInput('/proof_id', 'a proof id is a UUIDv7 as 32 lower-case hex characters');
}

export const randomHex = (bytes: number): string =>
  toHex(crypto.getRandomValues(new Uint8Array(bytes)));

/** A new UUIDv7, in the form of a proof id. */
export function newUuid(): string {
  const time = Date.now().toString(16).padStart(12, '0');
  return `${time}7000b${randomHex(8).slice(1)}`;
}

/**
 * A request and its response, each with a hash that anyone can recompute. A kept envelope shows
 * which request a response belongs to, but has no signature.
 */
export interface RequestHashEnvelope<T> {
  /** SHA-256 of `canonical_request`, as 64 lower-case hex characters. */
  request_hash: string;
  /**
   * RFC 8785 text: for a POST the sent body, for a GET `{"method":"GET","path":…,"query":{…}}`. The path
   * begins with `/v1`, so that it does not depend on the deployment.
   */
  canonical_request: string;
  /** SHA-256 of the received bytes, as 64 lower-case hex characters. */
  response_hash: string;
  /** `X-Request-Id` of the response, which identifies the request to the operator; null if absent. */
  request_id: string | null;
  /** The engine's response, unchanged. */
  response: T;
}

/** Requests a document with status 200, and wraps it with its request. */
export async function requestEnvelope<T>(
  engine: HttpClient,
  request: HttpRequest,
  read: (answer: Answer) => T,
): Promise<RequestHashEnvelope<T>> {
  const { method, path, query = {}, body } = request;
  const canonical = body ?? canonicalBody({ method, path, query });
  const answer = await engine.read(request);
  return {
    request_hash: hashHex(nobleSha256, canonical),
    canonical_request: fromUtf8(canonical),
    response_hash: hashHex(nobleSha256, answer.bytes),
    request_id: answer.headers.get('x-request-id'),
    response: read(answer),
  };
}
