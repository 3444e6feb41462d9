import { readEntry } from '#protocol/entries';
import type { KeyedEntry } from '#protocol/key-state';
import { leafHash } from '#protocol/merkle';
import { nativeSha256 } from '#runtime/crypto/node';
import { keyEntries } from '#sql/log/log';
import type { VerifiedPrefix } from '#sql/log/verdicts';
import type { VerifyContext } from './context.js';

/** The key entries of a prefix of the log, and what makes a lost or changed one show. */
export interface KeyHistory {
  entries: KeyedEntry[];
  /** Chain over index and leaf hash of every key entry, 32 bytes. */
  digest: Buffer;
  /** Whether they are the very entries that were verified. What comes after others counts no more. */
  sound: boolean;
}

export const NO_KEYS: KeyHistory = { entries: [], digest: Buffer.alloc(32), sound: true };

/** Canonical, a key entry begins `{"change":`, and no other entry with that letter. */
const FIRST_OF_NAME = 2;
const C_OF_CHANGE = 0x63;

/** The history with one more leaf, if that is a key entry. */
export function appendIfKeyEntry(
  history: KeyHistory,
  leafIndex: number,
  bytes: Uint8Array,
): KeyHistory {
  if (bytes[FIRST_OF_NAME] !== C_OF_CHANGE) return history;
  const entry = readEntry(bytes);
  if (entry?.type !== 'key') return history;
  const index = Buffer.alloc(8);
  index.writeBigUInt64BE(BigInt(leafIndex));
  const link = Buffer.concat([history.digest, index, leafHash(nativeSha256, bytes)]);
  return {
    entries: history.sound ? [...history.entries, { leafIndex, entry }] : [],
    digest: Buffer.from(nativeSha256(link)),
    sound: history.sound,
  };
}

/**
 * The key entries of the verified prefix. They must be the very ones that the verifier saw when it
 * verified them: none lost, none added, none changed. Else there are none at all, since a lost
 * `compromise` must never make a key good again, nor may the key be activated anew when its whole
 * past is lost: without a sound history no signature counts.
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
  context.log.error('ALARM: the history of signing keys is not the one that was verified');
  return { entries: [], digest: prefix.keysDigest, sound: false };
}
