import { fromBase64Url, isBytes } from '../bytes.js';
import { openCheckpointNote, type OpenedCheckpoint } from '../checkpoint.js';
import { isPoint, isUsablePublicKey, type Ed25519Verify } from '../ed25519.js';
import { errorOf, ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { ED25519_PUBLIC_KEY_BYTES, jwkThumbprint } from '../keys.js';
import { type PinnedKeys, type PinnedLogKey, pinKeys } from '../snapshot/trust.js';

export type { PinnedLogKey };
import { parsePolicy, requireQuorum, type TlogPolicy } from '../tlog-policy.js';

/**
 * An AEP public key as JWK (RFC 8037). Other members are ignored, as RFC 7517 requires. The last
 * three members come from the service's key list and bound the log positions at which signatures of
 * the key count.
 */
export interface PinnedJwk {
  kty: string;
  crv: string;
  x: string;
  /** If present, the RFC 7638 thumbprint of the key. */
  kid?: string | undefined;
  use?: string | undefined;
  alg?: string | undefined;
  /** Signatures count at leaf indexes greater than this. */
  activated_at?: number | undefined;
  /** Signatures count at leaf indexes smaller than this; null for no bound. */
  retired_at?: number | null | undefined;
  /** Signatures at this leaf index and later do not count, even if they counted before the compromise was logged. */
  compromised_from?: number | null | undefined;
}

/** An AEP public key: 32 bytes, their base64url text, or a JWK. */
export type PinnedAepKey = Uint8Array | string | PinnedJwk;

/** Keys that the caller obtained from another source than the checked document. */
export interface OfflineTrust {
  /**
   * AEP keys, or root keys, which also cover the keys to which they delegate. Without a key, every export
   * is undecidable.
   */
  aepKeys?: readonly PinnedAepKey[] | undefined;
  /**
   * The log's C2SP vkeys, several after a key change, and its origin. Without a log, the
   * result makes no statement about inclusion. With the text of a C2SP tlog-policy, checkpoints need
   * its quorum of witnesses; the log lines of the policy are not used.
   */
  log?: PinnedLog | null | undefined;
}

export interface PinnedLog {
  vkey: string | readonly PinnedLogKey[];
  origin: string;
  /** The text of a C2SP tlog-policy. */
  policy?: string | undefined;
}

/** Codes of the errors that are thrown for unusable pins, which the caller supplies. */
export const PIN_ERRORS = [
  'malformed_key',
  'unusable_key',
  'key_id_mismatch',
  'malformed_vkey',
  'malformed_origin',
  'malformed_policy',
] as const;
export type PinErrorCode = (typeof PIN_ERRORS)[number];

export interface AepKeyPin {
  /** 32 bytes */
  publicKey: Uint8Array;
  keyId: string;
  /** Signatures count at `after < leaf index < before`. */
  after: number;
  before: number;
  /** The `compromised_from` of the key; it also applies to keys to which a root delegated. */
  compromisedFrom: number;
}

export interface LogPin {
  vkeys: PinnedKeys;
  origin: string;
  /** The pinned policy; null if no cosignatures are required. */
  policy: TlogPolicy | null;
}

/**
 * Reads pinned keys. Throws a ProtocolError of {@link PIN_ERRORS}: `malformed_key` unless the pin
 * is an Ed25519 public key; `unusable_key` for a key under which no signature or every message
 * verifies (not a curve point, non-canonical encoding, small order); `key_id_mismatch` for the
 * `kid` of another key; `malformed_vkey`; `malformed_origin`; `malformed_policy`.
 */
export function readAepKeys(sha256: Sha256, keys: OfflineTrust['aepKeys'] = []): AepKeyPin[] {
  // A Uint8Array also has `map` and would pass as a list of numbers.
  if (!Array.isArray(keys)) throw malformedKey('expected a list of AEP keys');
  return (keys as readonly PinnedAepKey[]).map((key) => {
    const jwk = typeof key === 'object' && key !== null && !isBytes(key) ? key : null;
    const publicKey = usable(jwk === null ? bytesOf(key) : jwkBytes(jwk), 'AEP key');
    const keyId = jwkThumbprint(sha256, publicKey);
    if (jwk?.kid !== undefined && jwk.kid !== keyId) {
      throw new ProtocolError(
        'key_id_mismatch',
        `the kid of the key is not its thumbprint, ${keyId}`,
      );
    }
    const [retiredAt, compromisedFrom] = [jwk?.retired_at, jwk?.compromised_from].map(
      (end) => bound(end) ?? Infinity,
    ) as [number, number];
    const before = Math.min(retiredAt, compromisedFrom);
    return { publicKey, keyId, after: bound(jwk?.activated_at) ?? -1, before, compromisedFrom };
  });
}

export function readLog(sha256: Sha256, log: OfflineTrust['log']): LogPin | null {
  if (log === undefined || log === null) return null;
  const given = typeof log.vkey === 'string' ? [log.vkey] : log.vkey;
  // Rejects a single object with a bound, as the Python package does: only a list of keys has bounds.
  if (!Array.isArray(given)) throw new ProtocolError('malformed_vkey', 'expected a vkey');
  const vkeys = pinKeys(sha256, given as readonly PinnedLogKey[]);
  for (const { publicKey, name } of vkeys) usable(publicKey, `vkey of ${name}`);
  if (typeof log.origin !== 'string' || !/^[^\u0000-\u001f]+$/.test(log.origin)) {
    throw new ProtocolError('malformed_origin', 'expected one line of text as the log origin');
  }
  const { policy } = log;
  if (policy !== undefined && typeof policy !== 'string') {
    throw new ProtocolError('malformed_policy', 'expected the text of a policy');
  }
  return {
    vkeys,
    origin: log.origin,
    policy: policy === undefined ? null : parsePolicy(policy, sha256),
  };
}

/**
 * Opens a signed checkpoint under the pinned keys that are valid at its size, and requires the quorum of the
 * pinned policy. Throws the errors of `openCheckpointNote` and `requireQuorum`.
 */
export function openPinned(note: string, log: LogPin, verify: Ed25519Verify): OpenedCheckpoint {
  const opened = openCheckpointNote(note, log.vkeys, log.origin, verify);
  if (log.policy !== null) requireQuorum(note, log.policy, verify);
  return opened;
}

const malformedKey = errorOf('malformed_key');

function bytesOf(key: PinnedAepKey): Uint8Array {
  if (isBytes(key)) return key;
  if (typeof key !== 'string') throw malformedKey('expected an Ed25519 key');
  try {
    return fromBase64Url(key);
  } catch (cause) {
    throw malformedKey('expected 32 bytes in base64url', { cause });
  }
}

function jwkBytes(jwk: PinnedJwk): Uint8Array {
  const { kty, crv, x, use = 'sig', alg = 'EdDSA' } = jwk;
  const isEd25519 = kty === 'OKP' && crv === 'Ed25519' && typeof x === 'string';
  if (!isEd25519 || use !== 'sig' || !['EdDSA', 'Ed25519'].includes(alg))
    throw malformedKey('the JWK is not an Ed25519 key for signatures');
  if ('d' in jwk) throw malformedKey('the JWK is a private key; pin the public key');
  return bytesOf(x);
}

function usable(publicKey: Uint8Array, what: string): Uint8Array {
  if (publicKey.length !== ED25519_PUBLIC_KEY_BYTES)
    throw malformedKey(`the ${what} is not 32 bytes long, as an Ed25519 key is`);
  if (!isUsablePublicKey(publicKey) || !isPoint(publicKey)) {
    throw new ProtocolError('unusable_key', `no signature can verify under the ${what}`);
  }
  return publicKey;
}

function bound(index: number | null | undefined): number | null {
  if (index === null || index === undefined) return null;
  if (Number.isSafeInteger(index) && index >= 0) return index;
  throw malformedKey('expected a log position or null as a bound of the key');
}
