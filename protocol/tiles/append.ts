import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { HASH_BYTES, nodeHash } from '../merkle/hash.js';
import {
  nodesAtLevel,
  TILE_WIDTH,
  tileWidth,
  type TileCoordinate,
  type TileSlice,
} from './layout.js';

/** A tile with its content: 1 to 256 hashes of 32 bytes. */
export interface Tile extends TileCoordinate {
  hashes: Uint8Array;
}

/**
 * The partial tiles that an append of `count` leaves to a tree of `oldSize` extends, with their
 * current widths: the input of {@link extendTiles}. At most one a level.
 */
export function tilesForAppend(oldSize: number, count: number): TileSlice[] {
  const tiles: TileSlice[] = [];
  for (
    let level = 0;
    nodesAtLevel(level, oldSize + count) > nodesAtLevel(level, oldSize);
    level++
  ) {
    const index = Math.floor(nodesAtLevel(level, oldSize) / TILE_WIDTH);
    const width = tileWidth(level, index, oldSize);
    if (width > 0) tiles.push({ level, index, width });
  }
  return tiles;
}

/**
 * Appends leaves to a tree of `oldSize` and returns every new or extended tile in full, ascending
 * by level and index. `current` are the tiles of {@link tilesForAppend}. A missing tile or one of
 * another width is `malformed_tile`: an append must stop when tiles contradict the tree size.
 */
export function extendTiles(
  sha256: Sha256,
  oldSize: number,
  newLeafHashes: readonly Uint8Array[],
  current: readonly Tile[],
): Tile[] {
  const touched: Tile[] = [];
  let added: readonly Uint8Array[] = newLeafHashes;
  for (let level = 0; added.length > 0; level++) {
    const before = nodesAtLevel(level, oldSize);
    const tiles = extendLevel(level, before, added, current);
    touched.push(...tiles);
    added = tiles
      .filter((tile) => tile.hashes.length === TILE_WIDTH * HASH_BYTES)
      .map((tile) => tileRoot(sha256, tile.hashes));
  }
  return touched;
}

function extendLevel(
  level: number,
  before: number,
  added: readonly Uint8Array[],
  current: readonly Tile[],
): Tile[] {
  const tiles: Tile[] = [];
  let at = before;
  let next = 0;
  while (next < added.length) {
    const index = Math.floor(at / TILE_WIDTH);
    const present = at % TILE_WIDTH;
    const taken = Math.min(TILE_WIDTH - present, added.length - next);
    const hashes = new Uint8Array((present + taken) * HASH_BYTES);
    if (present > 0) hashes.set(contentOf(level, index, present, current));
    for (let i = 0; i < taken; i++) {
      const hash = added[next + i]!;
      if (hash.length !== HASH_BYTES) {
        throw new ProtocolError('malformed_tile', 'expected leaf hashes of 32 bytes');
      }
      hashes.set(hash, (present + i) * HASH_BYTES);
    }
    tiles.push({ level, index, hashes });
    at += taken;
    next += taken;
  }
  return tiles;
}

function contentOf(
  level: number,
  index: number,
  width: number,
  current: readonly Tile[],
): Uint8Array {
  const tile = current.find((candidate) => candidate.level === level && candidate.index === index);
  if (tile?.hashes.length !== width * HASH_BYTES) {
    throw new ProtocolError(
      'malformed_tile',
      `tile ${level}/${index} does not hold ${width} hashes`,
    );
  }
  return tile.hashes;
}

/** Root of the perfect subtree over concatenated hashes, whose number is a power of two. */
export function tileRoot(sha256: Sha256, hashes: Uint8Array): Uint8Array {
  let row: Uint8Array[] = [];
  for (let at = 0; at < hashes.length; at += HASH_BYTES) {
    row.push(hashes.subarray(at, at + HASH_BYTES));
  }
  while (row.length > 1) {
    const parents: Uint8Array[] = [];
    for (let i = 0; i < row.length; i += 2) parents.push(nodeHash(sha256, row[i]!, row[i + 1]!));
    row = parents;
  }
  return row[0]!;
}
