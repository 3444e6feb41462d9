import { equalBytes } from '#protocol/bytes';
import { HASH_BYTES, leafHash, verifyConsistency } from '#protocol/merkle';
import {
  consistencyFromTiles,
  inclusionFromTiles,
  rootFromTiles,
  TILE_WIDTH,
  type TileReader,
  tileRoot,
  tileWidth,
  encodeEntryBundle,
  entriesPath,
  tilePath,
  tilesBetween,
} from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import { mismatch } from '../errors.js';
import type { RegistryView } from '../registry/sql-registry.js';
import type { PublishedFile } from '../store/published-files.js';

export interface TreeHead {
  size: number;
  root: Uint8Array;
}

/**
 * Maximum number of cached tiles, of cached entry bundles and of cached roots of a tree: about 16 MB
 * of entries.
 */
const KEPT_TILES = 128;

/**
 * The tree of the registry's tiles. The caller must check that it extends every trusted head, because
 * its root is untrusted. Every tile and entry is checked against the root before use.
 */
export class VerifiedTree {
  private readonly partial = new Map<string, Uint8Array>();
  /** Tiles that were read and are not yet checked. */
  private readonly read = new Map<string, Uint8Array>();
  /** Checked data, which `open` moves to the next tree that extends this tree. */
  private kept = {
    tiles: new Map<string, Uint8Array>(),
    /** Entries by the index of their tile. */
    entries: new Map<number, Uint8Array[]>(),
    roots: new Map<number, Uint8Array>(),
  };

  private constructor(
    readonly head: TreeHead,
    private readonly registry: Pick<RegistryView, 'tile' | 'entries'>,
  ) {}

  /** @param before a tree whose checked data moves to the new tree if the new tree extends it */
  static async open(
    size: number,
    registry: Pick<RegistryView, 'tile' | 'entries'>,
    before: VerifiedTree | null = null,
  ): Promise<VerifiedTree> {
    const tree = new VerifiedTree({ size, root: new Uint8Array() }, registry);
    tree.head.root = await rootFromTiles(nativeSha256, size, async (level, index, width) => {
      const hashes = (await tree.unchecked(level, index, width)).slice(0, width * HASH_BYTES);
      // The root covers every hash of the partial tiles.
      if (width < TILE_WIDTH) tree.partial.set(`${level}/${index}`, hashes);
      return hashes;
    });
    if (before !== null && (await tree.extends(before.head))) {
      // Moves the caches instead of sharing them: later entries of two trees that extend `before` may differ.
      [tree.kept, before.kept] = [before.kept, tree.kept];
      keep(tree.kept.roots, before.head.size, before.head.root);
    }
    return tree;
  }

  async extends({ size, root }: TreeHead): Promise<boolean> {
    if (size > this.head.size) return false;
    const known = this.kept.roots.get(size);
    if (known !== undefined) return equalBytes(known, root);
    const path = await consistencyFromTiles(nativeSha256, size, this.head.size, this.unchecked);
    const isExtension = verifyConsistency(nativeSha256, {
      size1: size,
      root1: root,
      size2: this.head.size,
      root2: this.head.root,
      path,
    });
    if (isExtension) keep(this.kept.roots, size, root);
    return isExtension;
  }

  /** The root at any size up to the size of this tree. */
  async rootAt(size: number): Promise<Uint8Array> {
    const { roots } = this.kept;
    return roots.get(size) ?? keep(roots, size, await rootFromTiles(nativeSha256, size, this.tile));
  }

  inclusion(index: number): Promise<Uint8Array[]> {
    return inclusionFromTiles(nativeSha256, index, this.head.size, this.tile);
  }

  /** Returns a tile, checked and cut to its width in this tree. */
  readonly tile = async (level: number, index: number): Promise<Uint8Array> => {
    const name = `${level}/${index}`;
    const known = this.partial.get(name) ?? this.kept.tiles.get(name);
    if (known !== undefined) return known;
    if (tileWidth(level, index, this.head.size) !== TILE_WIDTH) {
      throw mismatch(`the tree of ${this.head.size} leaves has no tile ${level}/${index}`);
    }
    const hashes = await this.unchecked(level, index, TILE_WIDTH);
    // The root of a full tile is one hash of the tile above.
    const parent = await this.tile(level + 1, Math.floor(index / TILE_WIDTH));
    const at = (index % TILE_WIDTH) * HASH_BYTES;
    if (!equalBytes(tileRoot(nativeSha256, hashes), parent.subarray(at, at + HASH_BYTES))) {
      throw mismatch(`tile ${level}/${index} does not have the root that the tile above it states`);
    }
    this.read.delete(name);
    return keep(this.kept.tiles, name, hashes);
  };

  /** The entries with indexes in [from, to), checked to be the leaves of this tree. */
  async entries(from: number, to: number): Promise<Uint8Array[]> {
    const { entries: kept } = this.kept;
    const entries: Uint8Array[] = [];
    for (let index = from; index < to; index++) {
      const entry = kept.get(Math.floor(index / TILE_WIDTH))?.[index % TILE_WIDTH];
      if (entry === undefined) break;
      entries.push(entry);
    }
    const first = from + entries.length;
    if (first === to) return entries;
    const read = await this.registry.entries(first, to);
    if (read.length !== to - first) {
      throw mismatch(`the log does not have one row for each of the leaves ${first} to ${to - 1}`);
    }
    let tile: Uint8Array = new Uint8Array();
    let inTile: Uint8Array[] = [];
    for (const [i, entry] of read.entries()) {
      const index = first + i;
      const at = index % TILE_WIDTH;
      if (i === 0 || at === 0) {
        const number = Math.floor(index / TILE_WIDTH);
        tile = await this.tile(0, number);
        inTile = kept.get(number) ?? keep(kept, number, []);
      }
      const hash = tile.subarray(at * HASH_BYTES, (at + 1) * HASH_BYTES);
      if (!equalBytes(leafHash(nativeSha256, entry), hash)) {
        throw mismatch(`the row of leaf ${index} does not match its leaf hash in the tree`);
      }
      inTile[at] = entry;
      entries.push(entry);
    }
    return entries;
  }

  private readonly unchecked: TileReader = async (level, index, width) => {
    const name = `${level}/${index}`;
    const known = this.partial.get(name) ?? this.kept.tiles.get(name) ?? this.read.get(name);
    const hashes = known ?? (await this.registry.tile(level, index));
    if (hashes === null || hashes.length < width * HASH_BYTES) {
      throw mismatch(`tile ${level}/${index} does not hold ${width} hashes`);
    }
    this.read.set(name, hashes);
    return hashes;
  };
}

/** Adds a value, and removes the oldest value when there are too many. */
function keep<K, V>(values: Map<K, V>, key: K, value: V): V {
  values.set(key, value);
  if (values.size > KEPT_TILES) values.delete(values.keys().next().value!);
  return value;
}

/** The file of a tile, cut to `width` hashes. */
async function tileFile(
  tree: VerifiedTree,
  { level, index, width }: { level: number; index: number; width: number },
  signedSize: number,
): Promise<PublishedFile> {
  const bytes = (await tree.tile(level, index)).slice(0, width * HASH_BYTES);
  // A failed cycle leaves files that no checkpoint covers. If a failover loses their leaves, other leaves follow.
  const replaces = (index * TILE_WIDTH + width) * TILE_WIDTH ** level > signedSize;
  return { path: tilePath(level, index, width), bytes, replaces };
}

/**
 * The leaf tiles and entry bundles of a chunk of entries, as wide as in a tree of `size` leaves;
 * omits tiles that the chunk does not fill to that width.
 *
 * @param first index of the first entry, which begins a tile
 * @param from number of leaves whose files exist already
 * @param signedSize size of the largest tree that was signed: later files may be replaced
 */
export async function leafFiles(
  tree: VerifiedTree,
  chunk: { first: number; entries: readonly Uint8Array[] },
  { from, signedSize }: { from: number; signedSize: number },
  size: number,
): Promise<PublishedFile[]> {
  const { first, entries } = chunk;
  const files: PublishedFile[] = [];
  for (let start = first; start < first + entries.length; start += TILE_WIDTH) {
    const index = start / TILE_WIDTH;
    const width = tileWidth(0, index, size);
    const bundle = entries.slice(start - first, start - first + width);
    if (width === 0 || bundle.length < width || start + width <= from) continue;
    const file = await tileFile(tree, { level: 0, index, width }, signedSize);
    const path = entriesPath(index, width);
    files.push(file, { ...file, path, bytes: encodeEntryBundle(bundle) });
  }
  return files;
}

/**
 * The files that a tree adds to a tree of `from` leaves, in groups that fit in memory. Leaf tiles
 * and entry bundles that are full below `covered` are left out.
 *
 * @param inspect called with every chunk of the entries that no earlier call wrote in full tiles
 */
export async function* logFiles(
  tree: VerifiedTree,
  { from, signedSize }: { from: number; signedSize: number },
  covered: number,
  chunkLeaves: number,
  inspect: (first: number, entries: readonly Uint8Array[]) => void,
): AsyncGenerator<PublishedFile[]> {
  const { size } = tree.head;
  const start = Math.max(from, covered);
  for (let first = start - (start % TILE_WIDTH); first < size; first += chunkLeaves) {
    const entries = await tree.entries(first, Math.min(first + chunkLeaves, size));
    inspect(first, entries);
    yield leafFiles(tree, { first, entries }, { from, signedSize }, size);
  }
  const upper = tilesBetween(from, Math.max(from, size)).filter(({ level }) => level > 0);
  yield Promise.all(upper.map((tile) => tileFile(tree, tile, signedSize)));
}
