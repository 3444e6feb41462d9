import { ProtocolError } from '../errors.js';
import { HASH_BYTES } from '../merkle/hash.js';
import { requireSize } from '../merkle/ranges.js';

/** C2SP tlog-tiles: tiles of height 8 hold up to 256 hashes. Names and sizes of tiles. */

export const TILE_HEIGHT = 8;
export const TILE_WIDTH = 256;
export const FULL_TILE_BYTES = TILE_WIDTH * HASH_BYTES;

/** Coordinates of a tile: `level` counts upwards from the leaves, `index` from the left. */
export interface TileCoordinate {
  level: number;
  index: number;
}

/** A tile and the number of its hashes. */
export interface TileSlice extends TileCoordinate {
  width: number;
}

/** `tile/0/x001/067`, and `tile/0/x001/067.p/5` for a partial tile of five hashes. */
export function tilePath(level: number, index: number, width: number = TILE_WIDTH): string {
  requireSize(level);
  if (level > 63) throw new ProtocolError('out_of_range', 'tile levels end at 63');
  return `tile/${level}/${indexPath(index)}${partial(width)}`;
}

/** `tile/entries/x001/067`, or its partial form. */
export function entriesPath(index: number, width: number = TILE_WIDTH): string {
  return `tile/entries/${indexPath(index)}${partial(width)}`;
}

/** Number of nodes at tile level `level` in a tree of `size` leaves. */
export function nodesAtLevel(level: number, size: number): number {
  return Math.floor(size / TILE_WIDTH ** level);
}

/** Number of hashes of tile `index` at `level` in a tree of `size` leaves: 0 to 256. */
export function tileWidth(level: number, index: number, size: number): number {
  return Math.max(0, Math.min(TILE_WIDTH, nodesAtLevel(level, size) - index * TILE_WIDTH));
}

/**
 * The tiles that a log adds when it grows from `oldSize` to `newSize`, each with its new width.
 * Ascending by level, then index.
 */
export function tilesBetween(oldSize: number, newSize: number): TileSlice[] {
  requireSize(oldSize);
  requireSize(newSize);
  const tiles: TileSlice[] = [];
  for (let level = 0; nodesAtLevel(level, newSize) > 0; level++) {
    const before = nodesAtLevel(level, oldSize);
    const after = nodesAtLevel(level, newSize);
    for (let index = Math.floor(before / TILE_WIDTH); index * TILE_WIDTH < after; index++) {
      const width = tileWidth(level, index, newSize);
      if (after > before) tiles.push({ level, index, width });
    }
  }
  return tiles;
}

function indexPath(index: number): string {
  requireSize(index);
  let path = String(index % 1000).padStart(3, '0');
  for (let rest = Math.floor(index / 1000); rest > 0; rest = Math.floor(rest / 1000)) {
    path = `x${String(rest % 1000).padStart(3, '0')}/${path}`;
  }
  return path;
}

function partial(width: number): string {
  if (!Number.isInteger(width) || width < 1 || width > TILE_WIDTH) {
    throw new ProtocolError('out_of_range', 'a tile holds 1 to 256 hashes');
  }
  return width === TILE_WIDTH ? '' : `.p/${width}`;
}
