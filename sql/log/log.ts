import { concat, equalBytes } from '#protocol/bytes';
import { proofEntryBytes } from '#protocol/entries';
import { HASH_BYTES, leafHash } from '#protocol/merkle';
import { extendTiles, tilesForAppend, TILE_WIDTH, tileWidth, type Tile } from '#protocol/tiles';
import { tileRoot } from '#protocol/tiles/append';
import type { Sha256 } from '#protocol/hash';
import { formatTime } from '#protocol/time';
import { arrayOf, fromUuid, toUuid } from '../db/columns.js';
import { type Db, pipeline, type Transaction } from '../db/transaction.js';
import { mapDbErrors } from '../db/errors.js';

export const PROOF = 1;
const STATUS = 2;
const KEY = 3;

/** The leaf kinds by their numbers in the `kind` column. */
export const LEAF_KINDS: Record<number, 'proof' | 'status' | 'key'> = {
  [PROOF]: 'proof',
  [STATUS]: 'status',
  [KEY]: 'key',
};

/** A leaf to append. The entry bytes of a proof derive from its fields; other kinds carry theirs. */
export type NewEntry =
  | {
      kind: 'proof';
      proofId: string;
      /** Epoch milliseconds. */
      at: number;
      /** Lower-case hex. */
      aepHash: string;
      proofRecordHash: string;
    }
  | { kind: 'status'; proofId: string; at: number; body: Uint8Array }
  | { kind: 'key'; at: number; body: Uint8Array };

/** The columns of one leaf in `svc.log_entry`. */
export interface EntryRow {
  leaf_index: string;
  kind: number;
  proof_id: string | null;
  at: Date;
  aep_hash: Buffer | null;
  proof_record_hash: Buffer | null;
  body: Buffer | null;
}

/** The canonical bytes of a leaf, as hashed into the tree. */
export function entryBytesOf(row: EntryRow): Uint8Array {
  if (row.kind !== PROOF) return row.body ?? new Uint8Array();
  return proofEntryBytes({
    proof_id: fromUuid(row.proof_id ?? ''),
    aep_hash: row.aep_hash?.toString('hex') ?? '',
    proof_record_hash: row.proof_record_hash?.toString('hex') ?? '',
    time: formatTime(row.at.getTime()),
  });
}

function newEntryBytes(entry: NewEntry): Uint8Array {
  if (entry.kind !== 'proof') return entry.body;
  return proofEntryBytes({
    proof_id: entry.proofId,
    aep_hash: entry.aepHash,
    proof_record_hash: entry.proofRecordHash,
    time: formatTime(entry.at),
  });
}

/** The number of leaves in the log. */
export function treeSize(sql: Db): Promise<number> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ tree_size: string }[]>`select tree_size from svc.log_head`;
    return Number(row?.tree_size ?? 0);
  });
}

/**
 * Takes the append lock and returns the index of the next leaf. The lock lasts until the transaction
 * ends; every check that depends on the index must follow it.
 */
export async function lockHead(tx: Transaction): Promise<number> {
  const [row] = await tx<{ tree_size: string }[]>`
    select tree_size from svc.log_head for update`;
  if (row === undefined) throw new Error('svc.log_head has no row');
  return Number(row.tree_size);
}

/**
 * Appends entries from index `size` on, which must be the result of `lockHead` in this transaction.
 * The rows, the changed tiles and the new size commit together.
 */
export async function appendLocked(
  tx: Transaction,
  sha256: Sha256,
  size: number,
  entries: NewEntry[],
): Promise<void> {
  if (entries.length === 0) return;
  const inserting = insertEntries(tx, size, entries);
  // Hashed while the database works.
  const hashing = Promise.resolve().then(() =>
    entries.map((entry) => leafHash(sha256, newEntryBytes(entry))),
  );
  const [, leaves, edge] = await pipeline(
    inserting,
    hashing,
    rightEdge(tx, sha256, size, entries.length),
  );
  await pipeline(
    ...extendTiles(sha256, size, leaves, edge).map(
      (tile) => tx`
        insert into svc.tile (level, tile_index, hashes)
        values (${tile.level}, ${tile.index}, ${Buffer.from(tile.hashes)})
        on conflict (level, tile_index) do update set hashes = excluded.hashes`,
    ),
    tx`update svc.log_head set tree_size = ${size + entries.length}`,
  );
}

/** Proofs are inserted in bulk; entries with their own bytes are few. */
async function insertEntries(tx: Transaction, size: number, entries: NewEntry[]): Promise<void> {
  const proofs = entries.flatMap((entry, offset) =>
    entry.kind === 'proof' ? [{ ...entry, leafIndex: size + offset }] : [],
  );
  if (proofs.length > 0) {
    const hex = proofs.map(({ aepHash, proofRecordHash }) => aepHash + proofRecordHash).join('');
    const hashes = Buffer.from(hex, 'hex');
    await tx`
      insert into svc.log_entry (leaf_index, kind, proof_id, at, aep_hash, proof_record_hash)
      select leaf_index, ${PROOF}, proof_id, to_timestamp(at / 1000.0),
        substring(${hashes}::bytea from 64 * n::int - 63 for 32),
        substring(${hashes}::bytea from 64 * n::int - 31 for 32)
      from unnest(${arrayOf(proofs.map(({ leafIndex }) => leafIndex))}::bigint[],
        ${arrayOf(proofs.map(({ proofId }) => proofId))}::uuid[],
        ${arrayOf(proofs.map(({ at }) => at))}::bigint[])
        with ordinality as added(leaf_index, proof_id, at, n)`;
  }
  const others = entries.flatMap((entry, offset) =>
    entry.kind === 'proof'
      ? []
      : [
          {
            leaf_index: size + offset,
            kind: entry.kind === 'status' ? STATUS : KEY,
            proof_id: entry.kind === 'status' ? toUuid(entry.proofId) : null,
            at: new Date(entry.at),
            body: Buffer.from(entry.body),
          },
        ],
  );
  if (others.length > 0) await tx`insert into svc.log_entry ${tx(others)}`;
}

/**
 * A stored tile differs from the log. Nothing is appended, because a tree built on a wrong hash stays
 * wrong. An operator must repair it.
 */
export class TileDamagedError extends Error {
  override readonly name = 'TileDamagedError';
}

/**
 * The partial tiles that the next `count` leaves extend, checked: a level-0 tile has the hashes of its
 * entries, a higher tile the roots of the tiles below. When a tile gets full, all of it is checked
 * before its root enters the level above; until then the last hash is enough for higher tiles, and
 * the hashes that this process has not checked yet for level 0.
 */
async function rightEdge(tx: Db, sha256: Sha256, size: number, count: number): Promise<Tile[]> {
  const edge: Tile[] = [];
  for (const { level, index, width } of tilesForAppend(size, count)) {
    const hashes = (await readTile(tx, level, index)) ?? Buffer.alloc(0);
    const first = index * TILE_WIDTH;
    const fills = tileWidth(level, index, size + count) === TILE_WIDTH;
    const checked = level === 0 ? checkedLeaves(hashes, width) : width - 1;
    const from = fills ? first : first + checked;
    const below = level === 0 ? leafHashes : tileRoots;
    const expected = await below(tx, sha256, level, from, first + width);
    if (!equalBytes(concat(...expected), hashes.subarray((from - first) * HASH_BYTES))) {
      throw new TileDamagedError(
        `tile ${level}/${index} does not match the log of ${size} leaves: appends fail until the tile, or the data below it, is repaired`,
      );
    }
    if (level === 0) lastChecked = hashes;
    edge.push({ level, index, hashes });
  }
  return edge;
}

// Entries never change, and small appends are frequent: reading a whole tile of entries under the
// append lock for each would dominate the time of the lock.
let lastChecked: Uint8Array = new Uint8Array(0);

/** How many leaves of a tile are already checked; 0 when any byte differs since. */
function checkedLeaves(hashes: Uint8Array, width: number): number {
  const checked = lastChecked.length / HASH_BYTES;
  const same = equalBytes(hashes.subarray(0, lastChecked.length), lastChecked);
  return same && checked <= width ? checked : 0;
}

type HashesBelow = (
  tx: Db,
  sha256: Sha256,
  level: number,
  from: number,
  to: number,
) => Promise<Uint8Array[]>;

const leafHashes: HashesBelow = async (tx, sha256, _level, from, to) =>
  (await entryRows(tx, from, to)).map(({ bytes }) => leafHash(sha256, bytes));

const tileRoots: HashesBelow = async (tx, sha256, level, from, to) => {
  const rows = await tx<{ hashes: Buffer }[]>`
    select hashes from svc.tile
    where level = ${level - 1} and tile_index >= ${from} and tile_index < ${to}
    order by tile_index`;
  return rows.map(({ hashes }) => tileRoot(sha256, hashes));
};

/** A tile's hashes, 32 bytes each, or null when it does not exist. */
export function readTile(sql: Db, level: number, index: number): Promise<Buffer | null> {
  return mapDbErrors(async () => {
    const [row] = await sql<{ hashes: Buffer }[]>`
      select hashes from svc.tile where level = ${level} and tile_index = ${index}`;
    return row?.hashes ?? null;
  });
}

/** Every key entry of the log, in order. */
export function keyEntries(sql: Db): Promise<{ leafIndex: number; body: Buffer }[]> {
  return mapDbErrors(async () => {
    const rows = await sql<{ leaf_index: string; body: Buffer }[]>`
      select leaf_index, body from svc.log_entry where kind = 3 order by leaf_index`;
    return rows.map((row) => ({ leafIndex: Number(row.leaf_index), body: row.body }));
  });
}

export interface StatusEntryRow {
  leafIndex: number;
  proofId: string;
  body: Buffer;
}

const statusRow = (row: { leaf_index: string; proof_id: string; body: Buffer }) => ({
  leafIndex: Number(row.leaf_index),
  proofId: fromUuid(row.proof_id),
  body: row.body,
});

/** The status entries with indexes in [from, to), in order. */
export function statusEntries(sql: Db, from: number, to: number): Promise<StatusEntryRow[]> {
  return mapDbErrors(async () => {
    const rows = await sql<{ leaf_index: string; proof_id: string; body: Buffer }[]>`
      select leaf_index, proof_id::text, body from svc.log_entry
      where kind = 2 and leaf_index >= ${from} and leaf_index < ${to} order by leaf_index`;
    return rows.map(statusRow);
  });
}

/** The status entries about the given proofs at indexes below `size`, in order. */
export function statusEntriesOf(
  sql: Db,
  proofIds: string[],
  size: number,
): Promise<StatusEntryRow[]> {
  return mapDbErrors(async () => {
    const rows = await sql<{ leaf_index: string; proof_id: string; body: Buffer }[]>`
      select leaf_index, proof_id::text, body from svc.log_entry
      where kind = 2 and proof_id = any(${proofIds.map(toUuid)}::uuid[]) and leaf_index < ${size}
      order by leaf_index`;
    return rows.map(statusRow);
  });
}

/** The public part of a proof: commitments only. */
export interface PublicProofRow {
  leafIndex: number;
  proofId: string;
  aepHash: Buffer;
  proofRecordHash: Buffer;
  /** Epoch milliseconds. */
  at: number;
  effect: 'ADMIT' | 'DENY';
  isOutcome: boolean;
  environment: 'sandbox' | 'live';
  keyId: string;
}

interface PublicProofColumns {
  leaf_index: string;
  proof_id: string;
  aep_hash: Buffer;
  proof_record_hash: Buffer;
  at: Date;
  effect: 'ADMIT' | 'DENY';
  is_outcome: boolean;
  environment: 'sandbox' | 'live';
  key_id: string;
}

const publicProof = (row: PublicProofColumns): PublicProofRow => ({
  leafIndex: Number(row.leaf_index),
  proofId: fromUuid(row.proof_id),
  aepHash: row.aep_hash,
  proofRecordHash: row.proof_record_hash,
  at: row.at.getTime(),
  effect: row.effect,
  isOutcome: row.is_outcome,
  environment: row.environment,
  keyId: row.key_id,
});

/** The proofs with leaf indexes in [from, to), in order. */
export function proofRows(sql: Db, from: number, to: number): Promise<PublicProofRow[]> {
  return mapDbErrors(async () => {
    const rows = await sql<PublicProofColumns[]>`
      select e.leaf_index, e.proof_id::text, e.aep_hash, e.proof_record_hash, e.at,
        p.effect, p.is_outcome, p.environment, p.key_id
      from svc.log_entry e join svc.proof p using (proof_id)
      where e.kind = 1 and e.leaf_index >= ${from} and e.leaf_index < ${to}
      order by e.leaf_index`;
    return rows.map(publicProof);
  });
}

/** The proofs at the given leaf indexes, in log order; other kinds of leaves are absent. */
export function proofRowsAt(sql: Db, leafIndexes: number[]): Promise<PublicProofRow[]> {
  return mapDbErrors(async () => {
    const rows = await sql<PublicProofColumns[]>`
      select e.leaf_index, e.proof_id::text, e.aep_hash, e.proof_record_hash, e.at,
        p.effect, p.is_outcome, p.environment, p.key_id
      from svc.log_entry e join svc.proof p using (proof_id)
      where e.kind = 1 and e.leaf_index = any(${leafIndexes}::bigint[])
      order by e.leaf_index`;
    return rows.map(publicProof);
  });
}

/** The canonical entry bytes with indexes in [from, to), in order. */
export function entryRows(
  sql: Db,
  from: number,
  to: number,
): Promise<{ leafIndex: number; bytes: Uint8Array }[]> {
  return mapDbErrors(async () => {
    const rows = await sql<EntryRow[]>`
      select leaf_index, kind, proof_id::text, at, aep_hash, proof_record_hash, body
      from svc.log_entry where leaf_index >= ${from} and leaf_index < ${to} order by leaf_index`;
    return rows.map((row) => ({ leafIndex: Number(row.leaf_index), bytes: entryBytesOf(row) }));
  });
}
