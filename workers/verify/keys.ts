import { readEntry } from '#protocol/entries';
import type { KeyedEntry } from '#protocol/keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { NO_KEYS_DIGEST, nextKeysDigest } from '#sql/log/leaf-checks';
import { keyEntries } from '#sql/log/log';
import type { VerifiedPrefix } from '#sql/log/verdicts';
import type { VerifyContext } from './context.js';

/** Key entries of a prefix of the log, with a digest that detects lost and changed entries. */
export interface KeyHistory {
  entries: KeyedEntry[];
  /** Hash chain over index and leaf hash of every key entry, 32 bytes. */
  digest: Buffer;
  /** Whether the digest matches the verified one. If not, later entries are ignored too. */
  sound: boolean;
}

export const NO_KEYS: KeyHistory = { entries: [], digest: NO_KEYS_DIGEST, sound: true };

/** A canonical key entry begins with `{"change":`; no other entry begins with that letter. */
const FIRST_OF_NAME = 2;
const C_OF_CHANGE = 0x63;

/** Appends the leaf to the history if it is a key entry. */
export function appendIfKeyEntry(
  history: KeyHistory,
  leafIndex: number,
  bytes: Uint8Array,
): KeyHistory {
  if (bytes[FIRST_OF_NAME] !== C_OF_CHANGE) return history;
  const entry = readEntry(bytes);
  if (entry?.type !== 'key') return history;
  return {
    entries: history.sound ? [...history.entries, { leafIndex, entry }] : [],
    digest: nextKeysDigest(nativeSha256, history.digest, leafIndex, bytes),
    sound: history.sound,
  };
}

/**
 * The key entries of the verified prefix. If any was lost, added or changed since it was verified, the
 * history is empty and no signature verifies: a lost `compromise` must never make a key valid again,
 * and a key without its past must not be activated a second time.
 */
export async function trustedKeys(
  context: VerifyContext,
  prefix: VerifiedPrefix | null,
): Promise<KeyHistory> {
  if (prefix === null) return NO_KEYS;
  let history = NO_KEYS;
  for (const { leafIndex, body } of await keyEntries(context.sql)) {
    if (leafIndex < prefix.treeSize) history = appendIfKeyEntry(history, leafIndex, body);
  }
  if (history.digest.equals(prefix.keysDigest)) return history;
  context.log.error(
    'verifier: the history of signing keys differs from the verified one; every proof fails',
  );
  return { entries: [], digest: prefix.keysDigest, sound: false };
}
