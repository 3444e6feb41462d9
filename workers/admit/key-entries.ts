import { equalBytes } from '#protocol/bytes';
import { readEntry } from '#protocol/entries';
import type { KeyedEntry } from '#protocol/keys';
import type { LogEntry } from '#protocol/schemas/log-entry';
import { KeyStates } from '#protocol/state/key-states';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import type { Db, Pool } from '#sql/db/transaction';
import { keyEntriesFrom, type KeysOfLog } from '#sql/log/keys';
import type { EntryBody } from '#sql/log/log';

/** Reads each key entry of a log once, because delegation makes many and every append needs them. */
export class KeyEntryReader {
  private known: KeysOfLog & { last: EntryBody | null };

  constructor(private readonly origin: string | undefined) {
    this.known = this.keysOf([], null);
  }

  async read(sql: Db): Promise<KeysOfLog> {
    const { from, add } = this.begin();
    return add(sql, await keyEntriesFrom(sql, from));
  }

  /** Begins a read: the caller reads the key entries from index `from` on, and passes them to `add`. */
  begin() {
    const { known } = this;
    const add = (sql: Db, rows: readonly EntryBody[]) => this.add(known, sql, rows);
    return { from: known.last?.leafIndex ?? 0, add };
  }

  private async add(
    known: KeyEntryReader['known'],
    sql: Db,
    rows: readonly EntryBody[],
  ): Promise<KeysOfLog> {
    const { last } = known;
    // A log can lose only its last leaves, for example in a failover: then the last known entry is
    // lost too.
    const isSame = last === null || (rows[0] !== undefined && isSameRow(rows[0], last));
    if (!isSame) return this.add(this.keysOf([], null), sql, await keyEntriesFrom(sql, 0));
    const added = last === null ? rows : rows.slice(1);
    if (added.length === 0) return known;
    const parsed = added.map((row) => ({ leafIndex: row.leafIndex, entry: readable(row) }));
    return (this.known = this.keysOf([...known.entries, ...parsed], added.at(-1)!));
  }

  private keysOf(entries: readonly KeyedEntry[], last: EntryBody | null) {
    return { entries, last, states: statesOf(entries, this.origin) };
  }
}

export function statesOf(entries: readonly KeyedEntry[], origin: string | undefined): KeyStates {
  const origins = origin === undefined ? [] : [origin];
  return new KeyStates({ sha256: nativeSha256, verify: nativeVerify, origins }, entries);
}

/** @throws an error that keeps admissions pending: a later version may have appended the entry */
function readable({ leafIndex, body }: EntryBody): LogEntry {
  const entry = readEntry(body);
  if (entry !== null) return entry;
  throw new Error(
    `the key entry at index ${leafIndex} is unreadable: update this worker, or run fsck`,
  );
}

const isSameRow = (row: EntryBody, other: EntryBody): boolean =>
  row.leafIndex === other.leafIndex && equalBytes(row.body, other.body);

const readers = new WeakMap<Pool, Map<string | undefined, KeyEntryReader>>();

/** The reader of a pool; one for each log for which delegations are signed. */
export function keyEntryReader(sql: Pool, logOrigin: string | undefined): KeyEntryReader {
  const ofPool = readers.get(sql) ?? new Map<string | undefined, KeyEntryReader>();
  readers.set(sql, ofPool);
  const reader = ofPool.get(logOrigin) ?? new KeyEntryReader(logOrigin);
  ofPool.set(logOrigin, reader);
  return reader;
}
