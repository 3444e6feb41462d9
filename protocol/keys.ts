import { equalBytes, toBase64Url, utf8, fromBase64Url } from './bytes.js';
import { isAepKeyEntry } from './entries.js';
import { ProtocolError } from './errors.js';
import type { Sha256 } from './hash.js';
import type { LogEntry } from './schemas/log-entry.js';

export const ED25519_PUBLIC_KEY_BYTES = 32;

/** An Ed25519 public key as a JWK (RFC 8037 §2), with its thumbprint as `kid`. */
export interface PublicJwk {
  kty: 'OKP';
  crv: 'Ed25519';
  x: string;
  kid: string;
  use: 'sig';
  alg: 'EdDSA';
}

/**
 * RFC 7638 thumbprint of an Ed25519 public key of 32 bytes, the key id of AEP keys: base64url
 * SHA-256 (43 characters) of its required members `crv`, `kty`, `x` in that order, without white
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

export function publicJwk(sha256: Sha256, publicKey: Uint8Array): PublicJwk {
  return {
    kty: 'OKP',
    crv: 'Ed25519',
    x: toBase64Url(publicKey),
    kid: jwkThumbprint(sha256, publicKey),
    use: 'sig',
    alg: 'EdDSA',
  };
}

export type KeyStatus = 'active' | 'retired' | 'compromised' | 'unknown';

export interface KeyState {
  /** 32 bytes; null when the log does not know the key. */
  publicKey: Uint8Array | null;
  state: KeyStatus;
}

export interface KeyedEntry<E extends LogEntry = LogEntry> {
  leafIndex: number;
  entry: E;
}

/**
 * The state of an AEP key for a signature at `leafIndex`. Key states depend on log positions, so
 * signatures cannot be back-dated: a key is active after its activation until its retirement, and a
 * compromise voids every signature from the index that it names, including those logged before the
 * compromise was known. Retirement and compromise are final.
 *
 * @param keyEntries the key entries of the log, ascending by leaf index
 * @param logSize ignores entries at and above this index
 */
export function keyStateAt(
  keyEntries: readonly KeyedEntry[],
  keyId: string,
  leafIndex: number,
  logSize: number,
): KeyState {
  let publicKey: Uint8Array | null = null;
  let activated = false;
  let retired = false;
  for (const { leafIndex: at, entry } of keyEntries) {
    if (!isAepKeyEntry(entry) || entry.key_id !== keyId || at >= logSize) continue;
    if (entry.change !== 'compromise' && at < leafIndex) {
      if (entry.change === 'retire') retired = true;
      else activated = true;
    }
    // The public key is that of the first entry that names the key.
    publicKey ??= fromBase64Url(entry.public_key);
  }
  const voided = voidedAt(keyEntries, keyId, leafIndex);
  if (voided !== null && voided < logSize) return { publicKey, state: 'compromised' };
  if (!activated || publicKey === null) return { publicKey, state: 'unknown' };
  return { publicKey, state: retired ? 'retired' : 'active' };
}

/**
 * The index of the first compromise entry that voids a signature of the key at `leafIndex`, or
 * null.
 *
 * @param keyEntries the key entries of the log, ascending by leaf index
 */
export function voidedAt(
  keyEntries: readonly KeyedEntry[],
  keyId: string,
  leafIndex: number,
): number | null {
  const voiding = keyEntries.find(
    ({ entry }) =>
      isAepKeyEntry(entry) &&
      entry.change === 'compromise' &&
      entry.key_id === keyId &&
      (entry.from_index ?? 0) <= leafIndex,
  );
  return voiding?.leafIndex ?? null;
}
