import type { Vkey } from '#protocol/note';
import type { Pool } from '#sql/db/transaction';
import type { Findings } from '../findings.js';
import type { KeyHistory } from './keys.js';

/** The context of the registry checks. */
export interface RegistryContext {
  sql: Pool;
  findings: Findings;
  /** The pinned log keys: only checkpoints signed by them count. */
  logVkeys: readonly [Vkey, ...Vkey[]];
  keys: KeyHistory;
  /** The number of leaves to check; the next run checks later appends. */
  size: number;
}

/** The rows of a table in order of their member `key`, in pages. `read` returns the rows after a key. */
export async function* pages<K extends string, T extends Record<K, string>>(
  key: K,
  size: number,
  first: string,
  read: (after: string, limit: number) => Promise<T[]>,
): AsyncGenerator<T[]> {
  for (let after = first; ;) {
    const rows = await read(after, size);
    yield rows;
    const last = rows.at(-1);
    if (last === undefined || rows.length < size) return;
    after = last[key];
  }
}

/** The key before every proof id and request id. */
export const FIRST_ID = '0'.repeat(32);

/** Most rows reported by one query. */
export const MAX_ROWS = 1_000;
