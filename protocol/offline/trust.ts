import { fromBase64Url, isBytes } from '../bytes.js';
import { isPoint, isUsablePublicKey } from '../ed25519.js';
import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { ED25519_PUBLIC_KEY_BYTES, jwkThumbprint } from '../keys.js';
import type { Vkey } from '../note.js';
import { pinKeys } from '../snapshot/trust.js';

/**
 * An AEP public key as JWK (RFC 8037). Other members are passed over, as RFC 7517 has it. The last
 * three are those of the service's list of keys: pinned with the key, they bound the log positions
 * at which its signatures count.
 */
export interface PinnedJwk {
  kty: string;
  crv: string;
  x: string;
  /** Where it is there, the key's RFC 7638 thumbprint. */
  kid?: string | undefined;
  use?: string | undefined;
  alg?: string | undefined;
  /** Signatures count at greater leaf indexes than this. */
  activated_at?: number | undefined;
  /** Signatures count at smaller leaf indexes than this; null for no end. */
  retired_at?: number | null | undefined;
  /** Likewise, whatever was said before. */
  compromised_from?: number | null | undefined;
}

/** An AEP public key: its 32 bytes, these in base64url, or a JWK. */
export type PinnedAepKey = Uint8Array | string | PinnedJwk;

/** What the reader believes already, from elsewhere than the document that is checked. */
export interface OfflineTrust {
  /** Without one nothing can be decided about an export. */
  aepKeys?: readonly PinnedAepKey[] | undefined;
  /**
   * The log's C2SP verifier key, or keys when it changed its own, and its origin. Without a log
   * nothing is said about inclusion.
   */
  log?: { vkey: string | readonly string[]; origin: string } | null | undefined;
}

/** Why a pin cannot be used. A pin is the caller's, never the document's, so these are thrown. */
export const PIN_ERRORS = [
  'malformed_key',
  'unusable_key',
  'key_id_mismatch',
  'malformed_vkey',
  'malformed_origin',
] as const;
export type PinErrorCode = (typeof PIN_ERRORS)[number];

export interface AepKeyPin {
  /** 32 bytes */
  publicKey: Uint8Array;
  keyId: string;
  /** Signatures count at `after < leaf index < before`. */
  after: number;
  before: number;
}

export interface LogPin {
  vkeys: readonly Vkey[];
  origin: string;
}

/**
 * Reads pins. A ProtocolError of {@link PIN_ERRORS}: `malformed_key` for what is no Ed25519 public
 * key, `unusable_key` for one under which nothing can verify or anything can (no point of the curve,
 * not its canonical encoding, of small order), `key_id_mismatch` for a `kid` of another key,
 * `malformed_vkey`, `malformed_origin`.
 */
export function readAepKeys(sha256: Sha256, keys: OfflineTrust['aepKeys'] = []): AepKeyPin[] {
  // A key by itself has a `map` too, and would be read as a list of numbers.
  if (!Array.isArray(keys)) throw new ProtocolError('malformed_key', 'expected a list of AEP keys');
  return (keys as readonly PinnedAepKey[]).map((key) => {
    const jwk: PinnedJwk | null = isJwk(key) ? key : null;
    const publicKey = usable(jwk === null ? bytesOf(key) : jwkBytes(jwk), 'AEP key');
    const keyId = jwkThumbprint(sha256, publicKey);
    if (jwk?.kid !== undefined && jwk.kid !== keyId) {
      throw new ProtocolError(
        'key_id_mismatch',
        `the thumbprint of the key is ${keyId}, not its kid`,
      );
    }
    const ends = [jwk?.retired_at, jwk?.compromised_from].map((end) => bound(end) ?? Infinity);
    return { publicKey, keyId, after: bound(jwk?.activated_at) ?? -1, before: Math.min(...ends) };
  });
}

/** Null when no log is pinned. */
export function readLog(sha256: Sha256, log: OfflineTrust['log']): LogPin | null {
  if (log === undefined || log === null) return null;
  const list = typeof log.vkey === 'string' ? [log.vkey] : log.vkey;
  if (!Array.isArray(list)) throw new ProtocolError('malformed_vkey', 'expected a verifier key');
  const vkeys = pinKeys(sha256, list as readonly string[]);
  for (const { publicKey, name } of vkeys) usable(publicKey, `verifier key of ${name}`);
  if (typeof log.origin !== 'string' || !/^[^\u0000-\u001f]+$/.test(log.origin)) {
    throw new ProtocolError('malformed_origin', 'the origin of a log is one line of text');
  }
  return { vkeys, origin: log.origin };
}

function isJwk(key: PinnedAepKey): key is PinnedJwk {
  return typeof key === 'object' && key !== null && !isBytes(key);
}

function bytesOf(key: PinnedAepKey): Uint8Array {
  if (isBytes(key)) return key;
  if (typeof key !== 'string') throw new ProtocolError('malformed_key', 'expected an Ed25519 key');
  try {
    return fromBase64Url(key);
  } catch (cause) {
    throw new ProtocolError('malformed_key', 'expected 32 bytes in base64url', { cause });
  }
}

function jwkBytes(jwk: PinnedJwk): Uint8Array {
  const { kty, crv, x, use = 'sig', alg = 'EdDSA' } = jwk;
  const isEd25519 = kty === 'OKP' && crv === 'Ed25519' && typeof x === 'string';
  if (!isEd25519 || use !== 'sig' || !['EdDSA', 'Ed25519'].includes(alg)) {
    throw new ProtocolError('malformed_key', 'the JWK is not an Ed25519 key for signatures');
  }
  if ('d' in jwk) {
    throw new ProtocolError('malformed_key', 'the JWK is a private key: pin its public half');
  }
  return bytesOf(x);
}

function usable(publicKey: Uint8Array, what: string): Uint8Array {
  if (publicKey.length !== ED25519_PUBLIC_KEY_BYTES) {
    throw new ProtocolError('malformed_key', `the ${what} has not the 32 bytes of an Ed25519 key`);
  }
  if (!isUsablePublicKey(publicKey) || !isPoint(publicKey)) {
    throw new ProtocolError('unusable_key', `no signature can be held against the ${what}`);
  }
  return publicKey;
}

function bound(index: number | null | undefined): number | null {
  if (index === null || index === undefined) return null;
  if (Number.isSafeInteger(index) && index >= 0) return index;
  throw new ProtocolError('malformed_key', 'a bound of a key is a log position or null');
}
