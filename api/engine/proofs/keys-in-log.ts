import { parseEntry } from '#protocol/entries';
import { ProtocolError } from '#protocol/errors';
import { keyStateAt, type KeyedEntry } from '#protocol/key-state';
import type { VerdictKey } from '#protocol/schemas/verdict';
import type { Db } from '#sql/db';
import { keyEntries } from '#sql/log';

/**
 * Every key entry of the log, in order. One that cannot be read may have been the end of a key, so
 * then there are none at all, and no signature counts.
 */
export async function keysInLog(sql: Db): Promise<KeyedEntry[]> {
  const rows = await keyEntries(sql);
  try {
    return rows.map(({ leafIndex, body }) => ({ leafIndex, entry: parseEntry(body) }));
  } catch (error) {
    if (error instanceof ProtocolError) return [];
    throw error;
  }
}

/** What the log says of a key for a signature at `leafIndex`, and where it says so. */
export function keyOf(
  entries: readonly KeyedEntry[],
  keyId: string,
  leafIndex: number,
  logSize: number,
): VerdictKey {
  const changes = entries.flatMap(({ leafIndex: at, entry }) =>
    entry.type === 'key' && entry.key_id === keyId ? [{ at, entry }] : [],
  );
  const first = (change: 'activate' | 'retire') =>
    changes.find(({ entry }) => entry.change === change)?.at ?? null;
  const compromised = changes.flatMap(({ entry }) => entry.from_index ?? []);
  return {
    key_id: keyId,
    source: 'log',
    state: keyStateAt(entries, keyId, leafIndex, logSize).state,
    activated_at_index: first('activate'),
    retired_at_index: first('retire'),
    compromised_from_index: compromised.length === 0 ? null : Math.min(...compromised),
  };
}
