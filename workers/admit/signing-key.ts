import { parseEntry } from '#protocol/entries';
import { keyStateAt, type KeyStatus } from '#protocol/key-state';
import type { Db } from '#sql/db';
import { keyEntries, treeSize } from '#sql/log';

/** What the log says of a key for whoever would sign next. Under the append lock that is asked again. */
export async function signingKeyState(sql: Db, keyId: string): Promise<KeyStatus> {
  const keys = await keyEntries(sql);
  const size = await treeSize(sql);
  const entries = keys.map(({ leafIndex, body }) => ({ leafIndex, entry: parseEntry(body) }));
  return keyStateAt(entries, keyId, size, size).state;
}
