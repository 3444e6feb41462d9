import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { foldRight, HASH_BYTES } from '../merkle/hash.js';
import {
  consistencyRanges,
  inclusionRanges,
  perfectNodes,
  type LeafRange,
  type PerfectNode,
} from '../merkle/ranges.js';
import { tileRoot } from './append.js';
import { TILE_HEIGHT, TILE_WIDTH, tileWidth } from './layout.js';

/**
 * Reads a tile: at least `width` hashes of 32 bytes. `width` is the tile's width in the requested
 * tree, and so names the partial file. More hashes are fine: tiles only grow.
 */
export type TileReader = (level: number, index: number, width: number) => Promise<Uint8Array>;

/** Root of the tree of `size` leaves. Reads one tile a level. */
export async function rootFromTiles(
  sha256: Sha256,
  size: number,
  read: TileReader,
): Promise<Uint8Array> {
  const [root] = await rootsOf(sha256, [{ start: 0, end: size }], size, read);
  return root!;
}

/** As `inclusionPath`, for a tree in tiles. Reads at most two tiles a level. */
export function inclusionFromTiles(
  sha256: Sha256,
  index: number,
  size: number,
  read: TileReader,
): Promise<Uint8Array[]> {
  return rootsOf(sha256, inclusionRanges(index, size), size, read);
}

/** As `consistencyPath`, for a tree in tiles. */
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
  if (offset + span > width) {
    throw new ProtocolError('out_of_range', `the subtree exceeds tree size ${size}`);
  }
  const tile = await read(tileLevel, index, width);
  if (tile.length < width * HASH_BYTES) {
    throw new ProtocolError('malformed_tile', `tile ${tileLevel}/${index} lacks hashes`);
  }
  return tileRoot(sha256, tile.slice(offset * HASH_BYTES, (offset + span) * HASH_BYTES));
}

async function rootsOf(
  sha256: Sha256,
  ranges: readonly LeafRange[],
  size: number,
  read: TileReader,
): Promise<Uint8Array[]> {
  const readOnce = cached(read);
  const subtrees = await Promise.all(
    ranges.map((range) =>
      Promise.all(perfectNodes(range).map((node) => hashAt(sha256, node, size, readOnce))),
    ),
  );
  return subtrees.map((hashes) => foldRight(sha256, hashes));
}

/** One proof reads several hashes of a tile. */
function cached(read: TileReader): TileReader {
  const tiles = new Map<string, Promise<Uint8Array>>();
  return (level, index, width) => {
    const name = `${level}/${index}`;
    let tile = tiles.get(name);
    if (tile === undefined) tiles.set(name, (tile = read(level, index, width)));
    return tile;
  };
}
