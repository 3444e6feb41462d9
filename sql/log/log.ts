import {
  proofEntryBytes,
  type ProofEntryInput,
  proofEntryText,
  entryBytes,
} from '#protocol/entries';
import { attempt } from '#protocol/errors';
import type {
  LogEntry,
  AepKeyEntry,
  Delegation,
  ErasureEntry,
  SnapshotEntry,
  VerdictEntry,
} from '#protocol/schemas/log-entry';
import type { Environment } from '#protocol/schemas/primitives';
import type { Effect } from '#protocol/status';
import { kept, type TileReader } from '#protocol/tiles';
import { formatTime } from '#protocol/time';
import { arrayOf, firstRow, valueOf, valuesOf } from '../db/columns.js';
import type { Db, Fragment, Transaction } from '../db/transaction.js';
import { validUntil, type Validity } from '../proofs/rebuild-aep.js';
import { toBase64 } from '#protocol/bytes';
import type { Vkey } from '#protocol/note';

export const PROOF = 1;
export const STATUS = 2;
export const KEY = 3;

export type LeafKind = LogEntry['type'];

/** The column `kind` of each type of entry. */
export const KIND_NUMBERS = {
  proof: PROOF,
  status: STATUS,
  key: KEY,
  erasure: 4,
  verdict: 5,
  snapshot: 6,
} as const satisfies Record<LeafKind, number>;

export const LEAF_KINDS: Record<number, LeafKind> = Object.fromEntries(
  Object.entries(KIND_NUMBERS).map(([type, kind]) => [kind, type as LeafKind]),
);

/** The columns of one leaf; the hashes in hex. */
export interface EntryRow {
  leafIndex: number;
  kind: number;
  /** The proof, or the proof that a status entry revokes; null for any other entry. */
  proofId: string | null;
  at: Date;
  aepHash: string | null;
  proofRecordHash: string | null;
  effect: Effect | null;
  isOutcome: boolean | null;
  environment: Environment | null;
  keyId: string | null;
  /** The validity in the entry; null: unlimited. */
  entryValidity: Validity | null;
  body: Buffer | null;
}

/** Columns of an `EntryRow`, from `svc.log_entry e`. */
export const entryColumns = (sql: Db) => sql`
  e.leaf_index as "leafIndex", e.kind, coalesce(e.proof_id, e.revokes) as "proofId", e.at,
  encode(e.aep_hash, 'hex') as "aepHash",
  encode(e.proof_record_hash, 'hex') as "proofRecordHash", e.effect, e.is_outcome as "isOutcome",
  e.environment, e.key_id as "keyId", e.validity as "entryValidity", e.body`;

function bytesOf(row: EntryRow, proofBytes: (entry: ProofEntryInput) => Uint8Array): Uint8Array {
  // A proof that was adopted from the published log has its published bytes in `body`.
  if (row.kind !== PROOF || row.body !== null) return row.body ?? new Uint8Array();
  const { effect, isOutcome } = row;
  if (effect === null || isOutcome === null) return new Uint8Array();
  return proofBytes({
    proof_id: row.proofId ?? '',
    aep_hash: row.aepHash ?? '',
    proof_record_hash: row.proofRecordHash ?? '',
    effect,
    environment: row.environment!,
    key_id: row.keyId ?? '',
    valid_until: validUntil(row.at.getTime(), row.entryValidity, { effect, isOutcome }),
    time: formatTime(row.at.getTime()),
  });
}

/**
 * The canonical bytes of a leaf, as hashed into the tree; empty for a damaged row, so that the other rows
 * can still be read.
 */
export const entryOrEmpty = (row: EntryRow, proofBytes = proofEntryBytes): Uint8Array =>
  attempt(() => bytesOf(row, proofBytes)) ?? new Uint8Array();

export const treeSize = (sql: Db): Promise<number> =>
  valueOf(sql`select tree_size from svc.log_head`);

/** A tile's hashes, 32 bytes each, or null when it does not exist. */
export async function readTile(sql: Db, level: number, index: number): Promise<Uint8Array | null> {
  const [row] = await sql<{ hashes: Buffer }[]>`
    select hashes from svc.tile where level = ${level} and tile_index = ${index}`;
  return row?.hashes ?? null;
}

/** Maximum number of cached tiles, 8 MiB: the leaves of one run may be in thousands of tiles. */
const CACHED_TILES = 1_024;

/**
 * Keeps the tiles read last, so that reading leaves in log order reads each stored tile about once.
 * A missing tile reads as empty, so every check that needs the tile fails.
 */
export function tileCache(sql: Db): TileReader {
  const tiles = new Map<string, Promise<Uint8Array>>();
  const read = async (level: number, index: number) =>
    (await readTile(sql, level, index)) ?? new Uint8Array();
  return (level, index) => kept(tiles, `${level}/${index}`, CACHED_TILES, () => read(level, index));
}

/** An entry other than a proof, with its canonical bytes. */
export interface EntryBody {
  leafIndex: number;
  body: Uint8Array;
}

/** The entries that match; `matching` continues the where clause. */
export const entriesWhere = (sql: Db, matching: Fragment) => sql<EntryBody[]>`
  select leaf_index as "leafIndex", body from svc.log_entry where ${matching}`;

/** The status entries about the given proofs at indexes below `size`, in order. */
export const statusEntriesOf = (sql: Db, proofIds: string[], size: number): Promise<EntryBody[]> =>
  entriesWhere(
    sql,
    sql`kind = 2 and revokes = any(${proofIds}::uuid[]) and leaf_index < ${size} order by leaf_index`,
  );

/** The last verdict or snapshot entry with an index below `below`, or null. */
export function latestEntry(sql: Db, type: 'verdict' | 'snapshot', below: number) {
  // The kind is a literal, so that the plan can use the partial index of these entries.
  const isOfType = type === 'verdict' ? sql`kind = 5` : sql`kind = 6`;
  const last = sql`${isOfType} and leaf_index < ${below} order by leaf_index desc limit 1`;
  return firstRow(entriesWhere(sql, last));
}

export const snapshotEntriesFrom = (sql: Db, from: number): Promise<EntryBody[]> =>
  entriesWhere(sql, sql`kind = 6 and leaf_index >= ${from} order by leaf_index`);

/** The number of proofs below `to` that each key has signed since its activation; keys without proofs are absent. */
export async function proofsByKey(
  sql: Db,
  keys: readonly { id: string; index: number }[],
  to: number,
): Promise<Map<string, number>> {
  const rows = await sql<{ keyId: string; proofs: number }[]>`
    select key_id as "keyId", count(*)::integer as proofs from svc.log_entry
    join unnest(${arrayOf(keys.map(({ id }) => id))}::text[],
      ${arrayOf(keys.map(({ index }) => index))}::bigint[]) as key(id, activated) on key_id = id
    where kind = 1 and leaf_index > ${Math.min(...keys.map(({ index }) => index))}
      and leaf_index < ${to} and leaf_index > activated
    group by key_id`;
  return new Map(rows.map(({ keyId, proofs }) => [keyId, proofs]));
}

const rowsBetween = (sql: Db, from: number, to: number) => sql<EntryRow[]>`
  select ${entryColumns(sql)} from svc.log_entry e
  where e.leaf_index >= ${from} and e.leaf_index < ${to} order by e.leaf_index`;

/**
 * The entry bytes with indexes in [from, to), in order. A damaged row may give wrong bytes, so the
 * caller must verify each entry against the tree.
 */
export async function entriesBetween(sql: Db, from: number, to: number): Promise<Uint8Array[]> {
  const rows = await rowsBetween(sql, from, to);
  return rows.map((row) => entryOrEmpty(row, (entry) => Buffer.from(proofEntryText(entry))));
}

/** The entry bytes with indexes in [from, to), in order, as `entryOrEmpty` returns them. */
export async function entryRows(sql: Db, from: number, to: number) {
  const rows = await rowsBetween(sql, from, to);
  return rows.map((row) => ({ leafIndex: row.leafIndex, bytes: entryOrEmpty(row) }));
}

export interface StoredCheckpoint {
  treeSize: number;
  root: Uint8Array;
  /** The published C2SP signed note. */
  note: string;
}

const stored = (sql: Db) => sql`select tree_size as "treeSize", root, note from svc.checkpoint`;

export const latestCheckpoint = (sql: Db) =>
  firstRow(sql<StoredCheckpoint[]>`${stored(sql)} order by tree_size desc limit 1`);

/**
 * Stores a signed checkpoint after the checkpoint of size `previous` (0 for the first checkpoint).
 * Compare-and-swap: two publishers cannot extend the same checkpoint.
 *
 * @returns false when `previous` is not the latest
 */
export async function insertCheckpoint(
  sql: Db,
  checkpoint: { treeSize: number; root: Uint8Array; note: string; previous: number },
): Promise<boolean> {
  const { treeSize, root, note, previous } = checkpoint;
  const inserted = await sql`
    insert into svc.checkpoint (tree_size, root, note)
    select ${treeSize}::bigint, ${root}::bytea, ${note}::text
    where ${treeSize}::bigint > ${previous}::bigint
      and ${previous}::bigint = coalesce((select max(tree_size) from svc.checkpoint), 0)
    on conflict do nothing`;
  return inserted.count === 1;
}

/** The size of the last checkpoint by one of these keys; 0 without such a checkpoint. The signature is not verified. */
export async function latestCheckpointBy(sql: Db, keys: readonly Vkey[]): Promise<number> {
  // A signature line has the key id and the signature in base64. The first five characters depend on the key id
  // alone: on 30 of its 32 bits.
  const lines = keys.map(
    ({ name, keyHash }) => `\n\u2014 ${name} ${toBase64(keyHash).slice(0, 5)}`,
  );
  const [row] = await sql<{ size: number }[]>`
    select tree_size as size from svc.checkpoint
    where exists (select from unnest(${lines}::text[]) line where position(line in note) > 0)
    order by tree_size desc limit 1`;
  return row?.size ?? 0;
}

/** The smallest checkpoint with at least `treeSize` leaves, or null; it never changes. */
export const firstCheckpointFrom = (sql: Db, treeSize: number) =>
  firstRow(sql<StoredCheckpoint[]>`
    ${stored(sql)} where tree_size >= ${treeSize} order by tree_size limit 1`);

export async function checkpointAt(sql: Db, treeSize: number): Promise<StoredCheckpoint | null> {
  const found = await firstCheckpointFrom(sql, treeSize);
  return found?.treeSize === treeSize ? found : null;
}

/** The names of the retired logs of this database: no publisher signs for these logs any more. */
export const endedOrigins = (sql: Db): Promise<string[]> =>
  valuesOf(sql`select origin from svc.ended_log`);

/**
 * The size of the last checkpoint of the retired logs: every entry below this size is theirs. 0 without retired logs.
 */
export const endedSize = (sql: Db): Promise<number> =>
  valueOf(sql`select coalesce(max(tree_size), 0) from svc.ended_log`);

/** Whether a log of this database is retired, for a worker, which has no right on `svc.ended_log`. */
export const isRetired = (sql: Db, origin: string): Promise<boolean> =>
  valueOf(sql`select exists (select from svc.retired_log where origin = ${origin})`);

/** The present and past names of this database's log. A delegation is signed for one of these names. */
export async function knownOrigins(sql: Db): Promise<string[]> {
  const [origin] = (await latestCheckpoint(sql))?.note.split('\n') ?? [];
  return [...(origin === undefined ? [] : [origin]), ...(await endedOrigins(sql))];
}

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
