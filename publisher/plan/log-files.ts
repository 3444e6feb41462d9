import {
  encodeEntryBundle,
  entriesPath,
  TILE_WIDTH,
  tilePath,
  tilesBetween,
  tileWidth,
} from '#protocol/tiles';
import { HASH_BYTES } from '#protocol/merkle';
import type { PublishedFile } from '../store/writer.js';
import type { VerifiedTree } from './tree.js';

/** The file of a tile, cut to `width` hashes. */
async function tileFile(
  tree: VerifiedTree,
  { level, index, width }: { level: number; index: number; width: number },
): Promise<PublishedFile> {
  const bytes = (await tree.tile(level, index)).slice(0, width * HASH_BYTES);
  return { path: tilePath(level, index, width), bytes, replaces: false };
}

/**
 * The leaf tiles and entry bundles of a chunk of entries, as wide as in a tree of `size` leaves;
 * omits tiles that the chunk does not fill to that width.
 *
 * @param first index of the first entry, which begins a tile
 * @param from number of leaves whose files exist already
 */
export async function leafFiles(
  tree: VerifiedTree,
  chunk: { first: number; entries: readonly Uint8Array[] },
  from: number,
  size: number,
): Promise<PublishedFile[]> {
  const { first, entries } = chunk;
  const files: PublishedFile[] = [];
  for (let start = first; start < first + entries.length; start += TILE_WIDTH) {
    const index = start / TILE_WIDTH;
    const width = tileWidth(0, index, size);
    const bundle = entries.slice(start - first, start - first + width);
    if (width === 0 || bundle.length < width || start + width <= from) continue;
    files.push(await tileFile(tree, { level: 0, index, width }), {
      path: entriesPath(index, width),
      bytes: encodeEntryBundle(bundle),
      replaces: false,
    });
  }
  return files;
}

/**
 * The files that a tree adds to a tree of `from` leaves, in groups that fit in memory. Leaf tiles
 * and entry bundles that are full below `covered` are left out.
 *
 * @param inspect called with every chunk of the entries from `covered` on
 */
export async function* logFiles(
  tree: VerifiedTree,
  from: number,
  covered: number,
  chunkLeaves: number,
  inspect: (first: number, entries: readonly Uint8Array[]) => void,
): AsyncGenerator<PublishedFile[]> {
  const { size } = tree.head;
  const start = Math.max(from, covered);
  for (let first = start - (start % TILE_WIDTH); first < size; first += chunkLeaves) {
    const entries = await tree.entries(first, Math.min(first + chunkLeaves, size));
    inspect(first, entries);
    yield leafFiles(tree, { first, entries }, from, size);
  }
  const upper = tilesBetween(from, Math.max(from, size)).filter(({ level }) => level > 0);
  yield Promise.all(upper.map((tile) => tileFile(tree, tile)));
}
