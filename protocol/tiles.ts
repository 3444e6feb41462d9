import { errorOf, ProtocolError } from './errors.js';
import type { Sha256 } from './hash.js';
import {
  consistencyRanges,
  foldRight,
  HASH_BYTES,
  inclusionRanges,
  type LeafRange,
  nodeHash,
  type PerfectNode,
  perfectNodes,
  requireSize,
} from './merkle.js';

/** Names and sizes of tiles (C2SP tlog-tiles): tiles of height 8 hold up to 256 hashes. */

const TILE_HEIGHT = 8;
export const TILE_WIDTH = 256;

/** Coordinates of a tile: `level` counts upwards from the leaves, `index` from the left. */
export interface TileCoordinate {
  level: number;
  index: number;
}

export interface TileSlice extends TileCoordinate {
  width: number;
}

/** `tile/0/x001/067`, and `tile/0/x001/067.p/5` for a partial tile of five hashes. */
export function tilePath(level: number, index: number, width: number = TILE_WIDTH): string {
  requireSize(level);
  if (level > 63) throw outOfRange('tile levels end at 63');
  return `tile/${level}/${indexPath(index)}${partial(width)}`;
}

export function entriesPath(index: number, width: number = TILE_WIDTH): string {
  return `tile/entries/${indexPath(index)}${partial(width)}`;
}

function nodesAtLevel(level: number, size: number): number {
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
  if (!Number.isInteger(width) || width < 1 || width > TILE_WIDTH)
    throw outOfRange('a tile must hold 1 to 256 hashes');
  return width === TILE_WIDTH ? '' : `.p/${width}`;
}

const malformedTile = errorOf('malformed_tile');
const outOfRange = errorOf('out_of_range');

/** A tile with its content: 1 to 256 hashes of 32 bytes. */
export interface Tile extends TileCoordinate {
  hashes: Uint8Array;
}

/**
 * The partial tiles that an append of `count` leaves to a tree of `oldSize` extends, with their
 * current widths: the input of {@link extendTiles}. At most one tile per level.
 */
export function tilesForAppend(oldSize: number, count: number): TileSlice[] {
  return tilesBetween(oldSize, oldSize + count)
    .map((tile) => ({ ...tile, width: tileWidth(tile.level, tile.index, oldSize) }))
    .filter(({ width }) => width > 0);
}

/**
 * Appends leaves to a tree of `oldSize` and returns every new or extended tile in full, ascending by level and index.
 * `current` are the tiles of {@link tilesForAppend}. Throws `malformed_tile` for a missing tile or a wrong width: an
 * append must stop when tiles contradict the tree size.
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
      if (hash.length !== HASH_BYTES) throw malformedTile('expected leaf hashes of 32 bytes');
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
  if (tile?.hashes.length !== width * HASH_BYTES)
    throw malformedTile(`tile ${level}/${index} does not hold ${width} hashes`);
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

/** An entry bundle stores lengths in 16 bits. */
export const MAX_ENTRY_BYTES = 0xffff;

/** An entry bundle (C2SP tlog-tiles): every entry after its length as a big-endian uint16. */
export function encodeEntryBundle(entries: readonly Uint8Array[]): Uint8Array {
  let length = 0;
  for (const entry of entries) {
    if (entry.length > MAX_ENTRY_BYTES) {
      throw new ProtocolError('malformed_entry', 'a log entry exceeds 65535 bytes');
    }
    length += 2 + entry.length;
  }
  const bundle = new Uint8Array(length);
  let at = 0;
  for (const entry of entries) {
    bundle[at] = entry.length >> 8;
    bundle[at + 1] = entry.length & 0xff;
    bundle.set(entry, at + 2);
    at += 2 + entry.length;
  }
  return bundle;
}

/** The entries of a bundle, as views into it. A truncated bundle is `malformed_tile`. */
export function decodeEntryBundle(bundle: Uint8Array): Uint8Array[] {
  const entries: Uint8Array[] = [];
  let at = 0;
  while (at < bundle.length) {
    const start = at + 2;
    const end = start + (bundle[at]! * 256 + (bundle[at + 1] ?? 0));
    if (end > bundle.length || entries.length === TILE_WIDTH)
      throw malformedTile('not an entry bundle');
    entries.push(bundle.subarray(start, end));
    at = end;
  }
  return entries;
}

/**
 * Reads a tile: at least `width` hashes of 32 bytes. `width` is the tile's width in the requested
 * tree, which is part of the name of a partial file. More hashes may be returned, because tiles only grow.
 */
export type TileReader = (level: number, index: number, width: number) => Promise<Uint8Array>;

/** Root of the tree of `size` leaves. Reads at most one tile per level. */
export async function rootFromTiles(
  sha256: Sha256,
  size: number,
  read: TileReader,
): Promise<Uint8Array> {
  const [root] = await rootsOf(sha256, [{ start: 0, end: size }], size, read);
  return root!;
}

/**
 * The inclusion proof of a leaf (RFC 6962 §2.1.1), from the leaf's sibling up. Reads at most two tiles per level.
 *
 * @param subtrees shared by the paths of many leaves, so that each subtree is hashed once
 */
export function inclusionFromTiles(
  sha256: Sha256,
  index: number,
  size: number,
  read: TileReader,
  subtrees?: SubtreeHashes,
): Promise<Uint8Array[]> {
  return rootsOf(sha256, inclusionRanges(index, size), size, read, subtrees);
}

/** The hashes of subtrees, by level and index. */
export type SubtreeHashes = Map<string, Promise<Uint8Array>>;

/** Maximum number of cached hashes, about 3 MB. Leaves in log order need few subtrees at a time. */
const SUBTREES_MAX = 8_192;

export function consistencyFromTiles(
  sha256: Sha256,
  size1: number,
  size2: number,
  read: TileReader,
): Promise<Uint8Array[]> {
  return rootsOf(sha256, consistencyRanges(size1, size2), size2, read);
}

/** Hash of a perfect subtree of the tree of `size` leaves; leaves are at level 0. */
export async function hashAt(
  sha256: Sha256,
  node: PerfectNode,
  size: number,
  read: TileReader,
): Promise<Uint8Array> {
  const tileLevel = Math.floor(node.level / TILE_HEIGHT);
  const span = 2 ** (node.level % TILE_HEIGHT);
  const first = node.index * span;
  const index = Math.floor(first / TILE_WIDTH);
  const offset = first % TILE_WIDTH;
  const width = tileWidth(tileLevel, index, size);
  if (offset + span > width) throw outOfRange(`the subtree exceeds tree size ${size}`);
  const tile = await read(tileLevel, index, width);
  if (tile.length < width * HASH_BYTES)
    throw malformedTile(`tile ${tileLevel}/${index} lacks hashes`);
  return tileRoot(sha256, tile.slice(offset * HASH_BYTES, (offset + span) * HASH_BYTES));
}

async function rootsOf(
  sha256: Sha256,
  ranges: readonly LeafRange[],
  size: number,
  read: TileReader,
  subtrees: SubtreeHashes = new Map(),
): Promise<Uint8Array[]> {
  const tiles = new Map<string, Promise<Uint8Array>>();
  const readOnce: TileReader = (level, index, width) =>
    kept(tiles, `${level}/${index}`, Infinity, () => read(level, index, width));
  const hashOf = (node: PerfectNode): Promise<Uint8Array> =>
    kept(subtrees, `${node.level}/${node.index}`, SUBTREES_MAX, () =>
      hashAt(sha256, node, size, readOnce),
    );
  const found = await Promise.all(
    ranges.map((range) => Promise.all(perfectNodes(range).map(hashOf))),
  );
  return found.map((hashes) => foldRight(sha256, hashes));
}

/** The value of a name, loaded once as long as it is among the `most` values that were loaded last. */
export function kept<T>(values: Map<string, T>, name: string, most: number, load: () => T): T {
  const known = values.get(name);
  if (known !== undefined) return known;
  const value = load();
  values.set(name, value);
  if (values.size > most) values.delete(values.keys().next().value!);
  return value;
}
