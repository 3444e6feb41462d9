import { fromBase64, fromBase64Url } from './bytes.js';
import { pae } from './dsse.js';
import { canonicalBytes } from './json.js';
import { jwkThumbprint, type KeyedEntry } from './keys.js';
import type { VerdictEntry } from './schemas/log-entry.js';
import type { VerifyCrypto } from './verify.js';

const PAYLOAD_TYPE = 'application/vnd.svc.registry.verdict+json';

/** The bytes that the verifier key signs. */
export function verdictMessage(origin: string, entry: Omit<VerdictEntry, 'sig'>): Uint8Array {
  return pae(PAYLOAD_TYPE, canonicalBytes({ origin, ...entry }));
}

/**
 * Whether a verifier key that is active at `leafIndex` signed the entry for the log of this origin.
 *
 * @param keys the key entries of the log, ascending by leaf index
 */
export function isSignedVerdict(
  crypto: VerifyCrypto,
  origin: string,
  { sig, ...entry }: VerdictEntry,
  keys: readonly KeyedEntry[],
  leafIndex: number,
): boolean {
  const key = activeVerifierKey(crypto, keys, entry.key_id, leafIndex);
  return key !== null && crypto.verify(key, verdictMessage(origin, entry), fromBase64(sig));
}

/** The public key, 32 bytes; null unless the key is an active verifier key at `leafIndex`. */
export function activeVerifierKey(
  { sha256 }: Pick<VerifyCrypto, 'sha256'>,
  keys: readonly KeyedEntry[],
  keyId: string,
  leafIndex: number,
): Uint8Array | null {
  let active: Uint8Array | null = null;
  let isTaken = false;
  for (const { leafIndex: at, entry } of keys) {
    if (at >= leafIndex || entry.type !== 'key' || !('key_id' in entry)) continue;
    if (entry.key_id !== keyId) continue;
    if (entry.change !== 'activate') {
      if (entry.use === 'verifier') active = null;
    } else if (!isTaken) {
      // The first activation under any use decides what the key is for.
      isTaken = true;
      if (entry.use === 'verifier') active = fromBase64Url(entry.public_key);
    }
  }
  return active !== null && jwkThumbprint(sha256, active) === keyId ? active : null;
}

/**
 * The leaves that verdict entries list as failed and not as restored since.
 *
 * @param entries verdict entries that count, in log order
 * @param before the leaves that the entries before these list
 */
export function listedFailures(
  entries: Iterable<VerdictEntry>,
  before: Iterable<number> = [],
): Set<number> {
  const listed = new Set(before);
  for (const { failed, restored } of entries) {
    for (const leaf of failed) listed.add(leaf);
    for (const leaf of restored) listed.delete(leaf);
  }
  return listed;
}
