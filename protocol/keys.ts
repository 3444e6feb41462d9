import { equalBytes, toBase64Url, utf8 } from './bytes.js';
import { ProtocolError } from './errors.js';
import type { Sha256 } from './hash.js';
import type { LogEntry } from './schemas/log-entry.js';

export const ED25519_PUBLIC_KEY_BYTES = 32;

/**
 * RFC 7638 thumbprint of an Ed25519 public key of 32 bytes, the key id of AEP keys: base64url
 * SHA-256 (43 characters) of the JWK's members `crv`, `kty`, `x` in that order, without white
 * space. `malformed_key` for another length.
 */
export function jwkThumbprint(sha256: Sha256, publicKey: Uint8Array): string {
  if (publicKey.length !== ED25519_PUBLIC_KEY_BYTES) {
    throw new ProtocolError('malformed_key', 'expected an Ed25519 public key of 32 bytes');
  }
  if (latest?.sha256 === sha256 && equalBytes(latest.publicKey, publicKey))
    return latest.thumbprint;
  const members = `{"crv":"Ed25519","kty":"OKP","x":"${toBase64Url(publicKey)}"}`;
  const thumbprint = toBase64Url(sha256(utf8(members)));
  latest = { sha256, publicKey: Uint8Array.from(publicKey), thumbprint };
  return thumbprint;
}

let latest: { sha256: Sha256; publicKey: Uint8Array; thumbprint: string } | null = null;

/** An Ed25519 public key as a JWK (RFC 8037 §2), with its thumbprint as `kid`. */
export function publicJwk(sha256: Sha256, publicKey: Uint8Array) {
  const x = toBase64Url(publicKey);
  const kid = jwkThumbprint(sha256, publicKey);
  return { kty: 'OKP', crv: 'Ed25519', x, kid, use: 'sig', alg: 'EdDSA' } as const;
}

export type PublicJwk = ReturnType<typeof publicJwk>;

export type KeyStatus = 'active' | 'retired' | 'compromised' | 'unknown';

export interface KeyState {
  /** 32 bytes; null when the log has no such key. */
  publicKey: Uint8Array | null;
  state: KeyStatus;
}

export interface KeyedEntry<E extends LogEntry = LogEntry> {
  leafIndex: number;
  entry: E;
}
