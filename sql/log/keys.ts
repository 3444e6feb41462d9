import { parseEntry } from '#protocol/entries';
import { ProtocolError } from '#protocol/errors';
import { voidedAt, type KeyedEntry } from '#protocol/key-state';
import type { Db } from '../db/transaction.js';
import { keyEntries } from './log.js';

/** Every key entry of the log, in order; null when one is unreadable, as it may be a compromise. */
export async function keysInLog(sql: Db): Promise<KeyedEntry[] | null> {
  const rows = await keyEntries(sql);
  try {
    return rows.map(({ leafIndex, body }) => ({ leafIndex, entry: parseEntry(body) }));
  } catch (error) {
    if (error instanceof ProtocolError) return null;
    throw error;
  }
}

/**
 * The index of the entry that voids a proof signed by `keyId` at `leafIndex`; null when it is not void.
 * An unreadable entry may be a compromise, so it voids every proof.
 */
export function voidingLeaf(
  keys: readonly KeyedEntry[] | null,
  keyId: string,
  leafIndex: number,
): number | null {
  return keys === null ? 0 : voidedAt(keys, keyId, leafIndex);
}
