import { fromBase64Url } from './bytes.js';
import type { LogEntry } from './schemas/log-entry.js';

export type KeyStatus = 'active' | 'retired' | 'compromised' | 'unknown';

export interface KeyState {
  /** 32 bytes; null when the log does not know the key. */
  publicKey: Uint8Array | null;
  state: KeyStatus;
}

export interface KeyedEntry {
  leafIndex: number;
  entry: LogEntry;
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
    if (entry.type !== 'key' || entry.key_id !== keyId || at >= logSize) continue;
    if (entry.change !== 'compromise' && at < leafIndex) {
      if (entry.change === 'retire') retired = true;
      else activated = true;
    }
    // The first entry that names the key fixes its bytes.
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
      entry.type === 'key' &&
      entry.change === 'compromise' &&
      entry.key_id === keyId &&
      (entry.from_index ?? 0) <= leafIndex,
  );
  return voiding?.leafIndex ?? null;
}
