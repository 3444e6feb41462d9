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
} from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import { FatalPublishError } from '../errors.js';
import type { RegistryView } from '../registry/sql-registry.js';

export interface TreeHead {
  size: number;
  root: Uint8Array;
}

/**
 * Limit of the cached tiles, of the cached entry bundles and of the cached roots of a tree: about
 * 16 MB of entries.
 */
const KEPT_TILES = 128;

/**
 * The tree of the registry's tiles. The caller must check that it extends every trusted head, because
 * its root is untrusted. Every tile and entry is checked against the root before use.
 */
export class VerifiedTree {
  /** The partial tiles. */
  private readonly partial = new Map<string, Uint8Array>();
  /** Tiles that were read and are not yet checked. */
  private readonly read = new Map<string, Uint8Array>();
  /** Checked data, which `open` moves to the next tree that extends this tree. */
  private kept = {
    /** Full tiles. */
    tiles: new Map<string, Uint8Array>(),
    /** Entries by the index of their tile. */
    entries: new Map<number, Uint8Array[]>(),
    /** Roots by tree size. */
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
      // Moved, not shared: later entries of two trees that extend `before` may differ.
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
      throw mismatch(`it does not have one row for each of the leaves ${first} to ${to - 1}`);
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

/** Adds a value, and removes the one that was added first when there are too many. */
function keep<K, V>(values: Map<K, V>, key: K, value: V): V {
  values.set(key, value);
  if (values.size > KEPT_TILES) values.delete(values.keys().next().value!);
  return value;
}

/** Errors for a registry that contradicts the published log, with the next step. */
export function mismatch(what: string): FatalPublishError {
  return new FatalPublishError(
    'tree_mismatch',
    `The registry contradicts itself: ${what}. Publishing has stopped, and the published snapshot expires at its valid_until. ` +
      'Restore the database from a backup that holds at least every published leaf, and start the publisher again.',
  );
}

const IF_LOST =
  'Run "npm run admin -- log lost" to list the affected proofs from the published files. ' +
  'If these proofs cannot be recovered, and the database has no other leaves in their place, stop every publisher and append the proofs again ' +
  'without their payloads with "npm run admin -- log adopt". Otherwise retire the log: run "npm run admin -- log end", and start a publisher ' +
  'with a new LOG_ORIGIN, a new log key and an empty SNAPSHOT_DIR; keep serving the old directory as evidence.';

export function behind(size: number, published: number, what: string): FatalPublishError {
  return new FatalPublishError(
    'database_behind',
    `The database has ${size} leaves, but ${what} covers ${published}: it was restored, or failed over, to an older state, ` +
      `and publishing from it would fork the log. Restore a database that holds every published leaf and start the publisher again. ${IF_LOST}`,
  );
}

export function forked(size: number, what: string): FatalPublishError {
  return new FatalPublishError(
    'log_forked',
    `The log in the database does not extend the ${size} leaves of ${what}: published leaves were replaced. ` +
      `Restore a database that holds the published leaves and start the publisher again. ${IF_LOST}`,
  );
}

export function ended(origin: string): FatalPublishError {
  return new FatalPublishError(
    'log_ended',
    `The log ${origin} is retired in this database ("admin log end"), and no publisher signs for it again. ` +
      'Start the publisher with the LOG_ORIGIN, log key and SNAPSHOT_DIR of the log that replaces it.',
  );
}
