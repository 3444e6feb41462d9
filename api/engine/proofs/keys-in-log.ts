import { keyStateAt, type KeyedEntry } from '#protocol/key-state';
import type { VerdictKey } from '#protocol/schemas/verdict';

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
