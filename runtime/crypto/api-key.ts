import { randomBytes } from 'node:crypto';
import { apiKeyIdFrom, apiKeySecretHash, formatApiKey } from '#protocol/api-key';
import { nativeSha256 } from './node.js';

/** A new API key: its text for the caller, and what is stored. */
export function newApiKey(): { keyId: string; secretHash: Uint8Array; text: string } {
  const [keyId, secret] = [apiKeyIdFrom(randomBytes(8)), randomBytes(32)];
  const secretHash = apiKeySecretHash(nativeSha256, secret);
  return { keyId, secretHash, text: formatApiKey({ keyId, secret }) };
}
