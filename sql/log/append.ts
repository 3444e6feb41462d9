import { concat, equalBytes } from '#protocol/bytes';
import { proofEntryBytes } from '#protocol/entries';
import { HASH_BYTES, leafHash } from '#protocol/merkle';
import {
  extendTiles,
  type Tile,
  TILE_WIDTH,
  tileRoot,
  tilesForAppend,
  tileWidth,
} from '#protocol/tiles';
import { parentOf } from '#protocol/aep';
import { type AepSubject, isReport } from '#protocol/schemas/aep';
import type { Environment } from '#protocol/schemas/primitives';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { arrayOf, bytesInJson, bytesOf, fromUuid, valueOf } from '../db/columns.js';
import { type Db, type Fragment, pipeline, type Transaction } from '../db/transaction.js';
import { type Decision, UNLIMITED, validUntil, type Validity } from '../proofs/rebuild-aep.js';
import {
  entryColumns,
  entryOrEmpty,
  entryRows,
  type EntryRow,
  KIND_NUMBERS,
  type LeafKind,
  PROOF,
  readTile,
} from './log.js';

/** A proof to append; hashes in lower-case hex. */
export interface NewProof {
  kind: 'proof';
  proofId: string;
  tenantNo: number;
  lane: 1 | 2;
  environment: Environment;
  validity: Validity;
  /** Acceptance time, in epoch milliseconds. */
  at: number;
  subject: AepSubject;
  decision: Decision;
  aepHash: string;
  proofRecordHash: string;
  signature: Uint8Array;
}

/** A leaf to append. The entry bytes of a proof derive from its fields; other kinds have a `body`. */
export type NewEntry =
  | NewProof
  | { kind: 'status'; proofId: string; at: number; body: Uint8Array }
  | { kind: Exclude<LeafKind, 'proof' | 'status'>; at: number; body: Uint8Array };

function newEntryBytes(entry: NewEntry): Uint8Array {
  if (entry.kind !== 'proof') return entry.body;
  const { decision, subject } = entry;
  const decided = { effect: decision.effect, isOutcome: isReport(subject) };
  return proofEntryBytes({
    proof_id: entry.proofId,
    aep_hash: entry.aepHash,
    proof_record_hash: entry.proofRecordHash,
    effect: decision.effect,
    environment: entry.environment,
    key_id: decision.keyId,
    valid_until: validUntil(entry.at, entry.validity, decided),
    time: formatTime(entry.at),
  });
}

/**
 * Takes the append lock and returns the index of the next leaf. The lock lasts until the
 * transaction ends; every check that depends on the index must follow this call.
 */
export const lockHead = (tx: Transaction): Promise<number> =>
  valueOf(tx`select tree_size from svc.log_head for update`);

/** The part of the log that an append reads: the last tile, and its entries from `from` on. */
export interface LastTile {
  index: number;
  hashes: Uint8Array;
  from: number;
  entries: EntryRow[];
}

/**
 * Reads the last tile, and the entries that this process has not checked. To be called after
 * `lockHead`.
 */
async function readLastTile(tx: Transaction): Promise<LastTile | null> {
  const [row] = await tx<[LastTileRow?]>`select ${lastTileColumns(tx)} from ${lastTile(tx)}`;
  return row === undefined ? null : lastTileIn(row);
}

export interface LastTileRow {
  tileIndex: number | null;
  tileHashes: Buffer;
  tileFrom: number;
  tileEntries: EntryInJson[] | null;
}

type EntryInJson = Omit<EntryRow, 'at' | 'body'> & { at: string; body: string | null };

/** Columns of a `LastTileRow`, from `lastTile`. */
export const lastTileColumns = (tx: Db) => tx`
  tile.tile_index as "tileIndex", tile.hashes as "tileHashes", tile.first as "tileFrom",
  (select json_agg(row) from (select ${entryColumns(tx)} from svc.log_entry e
    where e.leaf_index >= tile.first order by e.leaf_index) row) as "tileEntries"`;

export function lastTile(tx: Db): Fragment {
  const checkedTo = lastChecked.index * TILE_WIDTH + lastChecked.hashes.length / HASH_BYTES;
  return tx`(select t.*, greatest(${checkedTo}::bigint, t.tile_index * ${TILE_WIDTH}) as first
    from svc.log_head h join svc.tile t on t.level = 0 and t.tile_index = h.tree_size / ${TILE_WIDTH}) tile`;
}

export function lastTileIn(row: LastTileRow): LastTile | null {
  if (row.tileIndex === null) return null;
  const entries = (row.tileEntries ?? []).map((entry) => ({
    ...entry,
    proofId: entry.proofId && fromUuid(entry.proofId),
    at: new Date(entry.at),
    body: entry.body === null ? null : bytesInJson(entry.body),
  }));
  return { index: row.tileIndex, hashes: row.tileHashes, from: row.tileFrom, entries };
}

/**
 * Appends entries from index `size` on, which must be the result of `lockHead` in this transaction.
 * The rows, the changed tiles and the new size commit together.
 *
 * @param last the last tile, selected with `lastTile` after `lockHead`; default: read here
 */
export async function appendEntries(
  tx: Transaction,
  size: number,
  entries: NewEntry[],
  last?: LastTile | null,
): Promise<void> {
  if (entries.length === 0) return;
  const end = last === undefined ? await readLastTile(tx) : last;
  const edge = await rightEdge(tx, size, entries.length, end);
  const leaves = entries.map((entry) => leafHash(nativeSha256, newEntryBytes(entry)));
  await pipeline(
    insertEntries(tx, size, entries),
    extendLog(tx, extendTiles(nativeSha256, size, leaves, edge), size + entries.length),
  );
}

function extendLog(tx: Transaction, tiles: readonly Tile[], size: number) {
  const hashes = bytesOf(tiles.map((tile) => tile.hashes));
  return tx`
    with tiles as (
      insert into svc.tile (level, tile_index, hashes)
      select level, tile_index, substring(${hashes.bytes}::bytea from start for length)
      from unnest(${arrayOf(tiles.map(({ level }) => level))}::smallint[],
        ${arrayOf(tiles.map(({ index }) => index))}::bigint[],
        ${hashes.starts}::integer[], ${hashes.lengths}::integer[])
        as extended(level, tile_index, start, length)
      on conflict (level, tile_index) do update set hashes = excluded.hashes)
    update svc.log_head set tree_size = ${size}`;
}

async function insertEntries(tx: Transaction, size: number, entries: NewEntry[]): Promise<void> {
  const placed = entries.map((entry, offset) => ({ ...entry, leafIndex: size + offset }));
  const proofs = placed.filter((entry) => entry.kind === 'proof');
  if (proofs.length > 0) await insertProofs(tx, proofs);
  const others = placed.filter((entry) => entry.kind !== 'proof');
  if (others.length === 0) return;
  await tx`insert into svc.log_entry ${tx(
    others.map((entry) => ({
      leaf_index: entry.leafIndex,
      kind: KIND_NUMBERS[entry.kind],
      revokes: entry.kind === 'status' ? entry.proofId : null,
      at: new Date(entry.at),
      body: entry.body,
    })),
  )}`;
}

const HASHES_BYTES = 2 * 32 + 64;

async function insertProofs(
  tx: Transaction,
  proofs: readonly (NewProof & { leafIndex: number })[],
): Promise<void> {
  // One parameter for the byte columns of all rows: the driver would escape an array byte by byte.
  const packed = Buffer.concat(
    proofs.flatMap(({ aepHash, proofRecordHash, signature }) => [
      Buffer.from(aepHash + proofRecordHash, 'hex'),
      signature,
    ]),
  );
  const part = (start: number, length: number) =>
    tx`substring(${packed}::bytea from ${HASHES_BYTES} * (n::int - 1) + ${start} for ${length})`;
  const decisions = proofs.map(({ decision }) => decision);
  const subjects = proofs.map(({ subject }) => subject);
  await tx`
    insert into svc.log_entry (leaf_index, at, tenant_no, kind, lane, is_outcome, proof_id, effect,
      environment, key_id, aep_hash, proof_record_hash, engine_version, signature, reasons,
      budgets, action, intent_id, parent, validity)
    select leaf_index, to_timestamp(at / 1000.0), tenant_no, ${PROOF}, lane, is_outcome, proof_id, effect,
      environment, key_id, ${part(1, 32)}, ${part(33, 32)}, engine_version, ${part(65, 64)},
      reasons, budgets, action, intent_id, parent, validity
    from unnest(${arrayOf(proofs.map(({ leafIndex }) => leafIndex))}::bigint[],
      ${arrayOf(proofs.map(({ at }) => at))}::bigint[],
      ${arrayOf(proofs.map(({ tenantNo }) => tenantNo))}::int[],
      ${arrayOf(proofs.map(({ lane }) => lane))}::smallint[],
      ${arrayOf(subjects.map(isReport))}::boolean[],
      ${arrayOf(proofs.map(({ proofId }) => proofId))}::uuid[],
      ${arrayOf(decisions.map(({ effect }) => effect))}::text[],
      ${arrayOf(proofs.map(({ environment }) => environment))}::text[],
      ${decisions.map(({ keyId }) => keyId)}::text[],
      ${decisions.map(({ engineVersion }) => engineVersion)}::text[],
      ${decisions.map(({ reasons }) => JSON.stringify(reasons))}::text[]::jsonb[],
      ${decisions.map(({ budgets }) => jsonOf(budgets))}::text[]::jsonb[],
      ${subjects.map((subject) => ('action' in subject ? subject.action : null))}::text[],
      ${subjects.map((subject) => ('intent_id' in subject ? subject.intent_id : null))}::text[],
      ${subjects.map(parentOf)}::uuid[],
      ${proofs.map(({ validity }) => (validity === UNLIMITED ? null : JSON.stringify(validity)))}::text[]::jsonb[])
      with ordinality as added(leaf_index, at, tenant_no, lane, is_outcome, proof_id, effect, environment,
        key_id, engine_version, reasons, budgets, action, intent_id, parent, validity, n)`;
}

const jsonOf = (budgets: Decision['budgets']): string | null =>
  Object.keys(budgets).length === 0 ? null : JSON.stringify(budgets);

/**
 * A stored tile differs from the log. Nothing is appended, because a tree built on a wrong hash stays
 * wrong. An operator must repair the tile.
 */
export class TileDamagedError extends Error {}

/**
 * Returns the partial tiles that the next `count` leaves extend, after a check: a level-0 tile must
 * have the hashes of its entries, a higher tile the roots of the tiles below. A tile that these
 * leaves fill is checked completely. In other tiles only new hashes are checked: at level 0 the
 * hashes that this process has not checked yet, above level 0 only the last hash.
 */
async function rightEdge(
  tx: Db,
  size: number,
  count: number,
  last: LastTile | null,
): Promise<Tile[]> {
  const edge: Tile[] = [];
  for (const { level, index, width } of tilesForAppend(size, count)) {
    const known = level === 0 && index === last?.index ? last : null;
    const hashes = known?.hashes ?? (await readTile(tx, level, index)) ?? Buffer.alloc(0);
    const first = index * TILE_WIDTH;
    const fills = tileWidth(level, index, size + count) === TILE_WIDTH;
    const checked = level === 0 ? checkedLeaves(index, hashes, width) : width - 1;
    const from = fills ? first : first + checked;
    const to = first + width;
    let expected: Uint8Array[];
    if (level > 0) expected = await tileRoots(tx, level, from, to);
    else if (known?.from === from) {
      expected = known.entries.map((row) => leafHash(nativeSha256, entryOrEmpty(row)));
    } else {
      expected = (await entryRows(tx, from, to)).map(({ bytes }) => leafHash(nativeSha256, bytes));
    }
    if (!equalBytes(concat(...expected), hashes.subarray((from - first) * HASH_BYTES))) {
      throw new TileDamagedError(
        `tile ${level}/${index} does not match the log of ${size} leaves: appends fail until the tile, or the data below it, is repaired`,
      );
    }
    if (level === 0) lastChecked = { index, hashes };
    edge.push({ level, index, hashes });
  }
  return edge;
}

// The leaf tile checked last: entries never change, and reading a whole tile of entries at each of
// the frequent small appends would dominate the time under the append lock.
let lastChecked: Omit<Tile, 'level'> = { index: 0, hashes: new Uint8Array(0) };

/** How many leaves of a tile are already checked; 0 when any checked byte differs now. */
function checkedLeaves(index: number, hashes: Uint8Array, width: number): number {
  const checked = lastChecked.hashes.length / HASH_BYTES;
  const same = equalBytes(hashes.subarray(0, lastChecked.hashes.length), lastChecked.hashes);
  return index === lastChecked.index && same && checked <= width ? checked : 0;
}

async function tileRoots(tx: Db, level: number, from: number, to: number): Promise<Uint8Array[]> {
  const rows = await tx<{ hashes: Buffer }[]>`
    select hashes from svc.tile
    where level = ${level - 1} and tile_index >= ${from} and tile_index < ${to}
    order by tile_index`;
  return rows.map(({ hashes }) => tileRoot(nativeSha256, hashes));
}
