import { entryBytes } from '#protocol/entries';
import type {
  AepKeyEntry,
  Delegation,
  ErasureEntry,
  SnapshotEntry,
  VerdictEntry,
} from '#protocol/schemas/log-entry';
import { valueOf } from '../db/columns.js';
import type { Db, Transaction } from '../db/transaction.js';
import { entriesWhere, type EntryBody } from './log.js';

// Each database function `svc.append_…` takes the append lock until the transaction ends, checks the entry against the
// log, appends it and returns its index.

type Members<Entry> = Omit<Entry, 'schema_version' | 'type'>;

/** Notifications on this channel announce verdict entries. */
export const VERDICTS_CHANNEL = 'svc_verdicts';

/**
 * Appends a verdict entry, and announces it when the transaction commits. Requires the verifier's role.
 *
 * @param latest the index of the last verdict entry that the caller has read, or null
 * @throws an error with the code 40001 when the log has a later verdict entry
 */
export const appendVerdict = async (
  tx: Transaction,
  entry: Members<VerdictEntry>,
  latest: number | null,
): Promise<number> =>
  valueOf(tx`
    select svc.append_verdict(${entryBytes({ type: 'verdict', ...entry })}, ${latest}),
      pg_notify(${VERDICTS_CHANNEL}, '')`);

/**
 * Appends a snapshot entry. Only for the publisher's role.
 *
 * @param lease the connection that holds the publisher's lease in the database
 */
export const appendSnapshot = async (lease: Db, entry: Members<SnapshotEntry>): Promise<number> =>
  valueOf(lease`select svc.append_snapshot(${entryBytes({ type: 'snapshot', ...entry })})`);

/** The inputs of a snapshot: the last verdict entry, snapshot entry and change of shares. */
export interface LatestInputs {
  verdict: number | null;
  snapshot: number | null;
  shareChange: number;
}

export async function latestInputs(sql: Db): Promise<LatestInputs> {
  const [row] = await sql<[LatestInputs]>`
    select (select max(leaf_index) from svc.log_entry where kind = 5) as verdict,
      (select max(leaf_index) from svc.log_entry where kind = 6) as snapshot,
      (select coalesce(max(change_no), 0) from svc.grant_change) as "shareChange"`;
  return row;
}

/** Whether the log has a snapshot entry after an index, or any if the index is null. */
export const hasSnapshotAfter = (sql: Db, index: number | null): Promise<boolean> =>
  valueOf(sql`
    select exists (select from svc.log_entry where kind = 6 and leaf_index > ${index ?? -1})`);

/** Appends the activation of a delegated AEP key. Only for the worker's role. */
export const appendDelegation = async (
  sql: Db,
  entry: Members<AepKeyEntry & { change: 'activate'; delegation: Delegation }>,
): Promise<number> =>
  valueOf(sql`select svc.append_delegation(${entryBytes({ type: 'key', ...entry })})`);

/** Appends an erasure entry after the records of its erasures. Only for the role svc_erase. */
export const appendErasure = async (tx: Transaction, entry: Members<ErasureEntry>) =>
  valueOf<number>(tx`select svc.append_erasure(${entryBytes({ type: 'erasure', ...entry })})`);

/** Verdict entries with an index below `before`, newest first. */
export const verdictEntries = (sql: Db, before: number, limit: number): Promise<EntryBody[]> =>
  entriesWhere(
    sql,
    sql`kind = 5 and leaf_index < ${before} order by leaf_index desc limit ${limit}`,
  );

/** Verdict entries with an index in [from, to), in order. */
export function verdictEntriesFrom(sql: Db, from: number, to: number, limit: number) {
  const isBetween = sql`leaf_index >= ${from} and leaf_index < ${to}`;
  return entriesWhere(sql, sql`kind = 5 and ${isBetween} order by leaf_index limit ${limit}`);
}

/** The verdict entries that list at least one leaf, in order. */
export function listingVerdictEntries(sql: Db): Promise<EntryBody[]> {
  // The condition of the partial index log_entry_listing.
  const isListing = sql`position('"failed":[]' in body) = 0 or position('"restored":[]' in body) = 0`;
  return entriesWhere(sql, sql`kind = 5 and (${isListing}) order by leaf_index`);
}

/** Whether [from, to) has a leaf that is neither a verdict nor a snapshot. */
export const coversOtherLeaves = (sql: Db, from: number, to: number): Promise<boolean> =>
  valueOf(sql`
    select exists (select from svc.log_entry
      where leaf_index >= ${from} and leaf_index < ${to} and kind not in (5, 6))`);

/** Whether an artifact of a verified proof ended after `from` and at or before `to`, in epoch milliseconds. */
export function hasExpiredBetween(sql: Db, from: number, to: number): Promise<boolean> {
  const [after, through] = [new Date(from), new Date(to)];
  // The verifier records an expiry only once it has passed, so rows up to `from` need no check.
  return valueOf(sql`
    select exists (select from svc.verdict v join svc.log_entry e on e.leaf_index = v.first_index
      cross join lateral jsonb_each_text(e.validity) as ends(artifact, seconds)
      where not v.frontier and v.expired <> '{}' and v.verified_at > ${after}
        and e.at + seconds::bigint * interval '1 second' > ${after}
        and e.at + seconds::bigint * interval '1 second' <= ${through})`);
}
