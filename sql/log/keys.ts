import { parseEntry, readEntry } from '#protocol/entries';
import { attempt } from '#protocol/errors';
import type { KeyedEntry } from '#protocol/keys';
import { leafHash } from '#protocol/merkle';
import { type KeyContext, KeyStates } from '#protocol/state/log-keys';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import type { Db, Pool } from '../db/transaction.js';
import { entriesWhere, type EntryBody } from './log.js';
import { equalBytes } from '#protocol/bytes';
import type { LogEntry } from '#protocol/schemas/log-entry';

export interface KeysOfLog {
  entries: readonly KeyedEntry[];
  states: KeyStates;
}

/** The key entries with an index of at least `from`, in order. */
export const keyEntries = (sql: Db, from = 0) =>
  entriesWhere(sql, sql`kind = 3 and leaf_index >= ${from} order by leaf_index`);

/** Selects key entries other than delegations, because a log has many delegations. */
const isUndelegated = (sql: Db) => sql`position('"delegation"' in body) = 0`;

export const undelegatedKeyEntries = (sql: Db): Promise<EntryBody[]> =>
  entriesWhere(sql, sql`kind = 3 and ${isUndelegated(sql)} order by leaf_index`);

/**
 * The key entries in log order, with delegations only of keys in `keyIds`. Null when an entry is unreadable,
 * because that entry may be a compromise.
 */
export async function keysInLog(
  sql: Db,
  keyIds: readonly string[] = [],
): Promise<KeyedEntry[] | null> {
  const names = sql`select from unnest(${[...keyIds]}::text[]) as of(id)
    where position(convert_to(of.id, 'UTF8') in body) > 0`;
  const isWanted = sql`${isUndelegated(sql)} or exists (${names})`;
  const rows = await entriesWhere(sql, sql`kind = 3 and (${isWanted}) order by leaf_index`);
  const entries = attempt(() =>
    rows.map(({ leafIndex, body }) => ({ leafIndex, entry: parseEntry(body) })),
  );
  return entries ?? null;
}

/** The digest of an empty key history. */
export const NO_KEYS_DIGEST: Buffer = Buffer.alloc(32);

/** Extends the hash chain over index and leaf hash of every key entry by one entry. */
export function nextKeysDigest(digest: Uint8Array, leafIndex: number, body: Uint8Array): Buffer {
  const index = Buffer.alloc(8);
  index.writeBigUInt64BE(BigInt(leafIndex));
  return Buffer.from(nativeSha256(Buffer.concat([digest, index, leafHash(nativeSha256, body)])));
}

/**
 * Counts the proofs of each delegated key in `keyIds`, because `max_proofs` limits them.
 *
 * @param next the number of proofs that each key is about to sign; 1 to verify existing proofs
 */
export async function countProofs(
  sql: Db,
  states: KeyStates,
  keyIds: Iterable<string>,
  next = 1,
): Promise<void> {
  for (const { id, index, maxProofs, retiredFrom } of states.toCount(keyIds)) {
    const [last] = await sql<{ leafIndex: number }[]>`
      select leaf_index as "leafIndex" from svc.log_entry
      where kind = 1 and key_id = ${id} and leaf_index > ${index}
        and leaf_index < ${retiredFrom ?? Number.MAX_SAFE_INTEGER}
      order by leaf_index limit 1 offset ${Math.max(maxProofs! - next, 0)}`;
    const full = next > maxProofs! ? index : last?.leafIndex;
    states.countProofs(id, full === undefined ? null : full + 1);
  }
}

/** Needs no `origins`, because a compromise applies whether or not the signature of a delegation verifies. */
const COMPROMISES: KeyContext = { ...nativeCrypto, origins: [] };

/**
 * The index of the entry that voids a proof signed by `keyId` at `leafIndex`; null when the proof
 * is not void. An unreadable entry may be a compromise, so it voids every proof.
 */
export function voidingLeaf(
  keys: readonly KeyedEntry[] | null,
  keyId: string,
  leafIndex: number,
): number | null {
  return keys === null ? 0 : new KeyStates(COMPROMISES, keys).voidedAt(keyId, leafIndex);
}

/** The compromises of AEP keys and of their roots, in order. */
export function compromisesIn(keys: readonly KeyedEntry[]) {
  return keys.flatMap(({ leafIndex, entry }) => {
    if (entry.type !== 'key' || !('from_index' in entry)) return [];
    const { from_index: from = 0, key_id: keyId, use } = entry;
    return [{ keyId, isRoot: use === 'aep_root', from, until: leafIndex }];
  });
}

/** Reads each key entry of a log once: delegation adds many entries, and every append needs all of them. */
class KeyEntryReader {
  private known: KeysOfLog & { last: EntryBody | null };

  constructor(private readonly origin: string | undefined) {
    this.known = this.keysOf([], null);
  }

  async read(sql: Db): Promise<KeysOfLog> {
    const { from, add } = this.begin();
    return add(sql, await keyEntries(sql, from));
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
    if (!isSame) return this.add(this.keysOf([], null), sql, await keyEntries(sql));
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
  return new KeyStates({ ...nativeCrypto, origins }, entries);
}

/** @throws Error, which keeps admissions pending: a later version of the service may have appended the entry */
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

/** The key entry reader of a pool and a log origin: a root key signs each delegation for one origin. */
export function keyEntryReader(sql: Pool, logOrigin: string | undefined): KeyEntryReader {
  const ofPool = readers.get(sql) ?? new Map<string | undefined, KeyEntryReader>();
  readers.set(sql, ofPool);
  const reader = ofPool.get(logOrigin) ?? new KeyEntryReader(logOrigin);
  ofPool.set(logOrigin, reader);
  return reader;
}
