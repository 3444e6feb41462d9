import { equalBytes, toHex } from '#protocol/bytes';
import { HASH_BYTES, leafHash, verifyConsistency } from '#protocol/merkle';
import {
  consistencyFromTiles,
  rootFromTiles,
  TILE_WIDTH,
  type TileReader,
  tileRoot,
  tileWidth,
} from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import { FatalPublishError } from '../errors.js';

export interface TreeHead {
  size: number;
  root: Uint8Array;
}

/**
 * The tree of the registry's tiles. Every tile is checked, from the verifier's root downwards, before
 * use: the publisher publishes what was verified, even if a tile has been changed since.
 */
export class VerifiedTree {
  /**
   * Cached checked tiles: the partial tiles, and the few full tiles above the leaf tiles. Full leaf
   * tiles are not cached, because each is read once.
   */
  private readonly checked = new Map<string, Uint8Array>();

  private constructor(
    readonly head: TreeHead,
    private readonly fetch: (level: number, index: number) => Promise<Uint8Array | null>,
  ) {}

  /** Opens the tree of `head.size` leaves if its tiles have the root that the verifier computed. */
  static async open(
    head: TreeHead,
    fetch: (level: number, index: number) => Promise<Uint8Array | null>,
  ): Promise<VerifiedTree> {
    const tree = new VerifiedTree(head, fetch);
    // The root covers every hash of the partial tiles, so it checks them.
    const edge = new Map<string, Uint8Array>();
    const root = await rootFromTiles(nativeSha256, head.size, async (level, index, width) => {
      const hashes = (await tree.unchecked(level, index, width)).slice(0, width * HASH_BYTES);
      if (width < TILE_WIDTH) edge.set(`${level}/${index}`, hashes);
      return hashes;
    });
    if (!equalBytes(root, head.root)) {
      throw mismatch(
        `the tiles of the first ${head.size} leaves have the root ${toHex(root)}, but the verifier computed ${toHex(head.root)}`,
      );
    }
    for (const [name, hashes] of edge) tree.checked.set(name, hashes);
    return tree;
  }

  /** Stops the publisher unless this tree extends `earlier`. */
  async requireExtends(earlier: TreeHead, what: string): Promise<void> {
    if (earlier.size > this.head.size) throw behind(this.head.size, earlier.size, what);
    const path = await consistencyFromTiles(
      nativeSha256,
      earlier.size,
      this.head.size,
      this.unchecked,
    );
    const consistent = verifyConsistency(nativeSha256, {
      size1: earlier.size,
      root1: earlier.root,
      size2: this.head.size,
      root2: this.head.root,
      path,
    });
    if (!consistent) throw forked(earlier.size, what);
  }

  /** Returns a tile, checked and cut to its width in this tree. */
  async tile(level: number, index: number): Promise<Uint8Array> {
    const name = `${level}/${index}`;
    const known = this.checked.get(name);
    if (known !== undefined) return known;
    if (tileWidth(level, index, this.head.size) !== TILE_WIDTH) {
      throw mismatch(`tile ${level}/${index} is not part of the tree under its root`);
    }
    const hashes = (await this.unchecked(level, index, TILE_WIDTH)).slice();
    // The root of a full tile is one hash of the tile above.
    const parent = await this.tile(level + 1, Math.floor(index / TILE_WIDTH));
    const at = (index % TILE_WIDTH) * HASH_BYTES;
    if (!equalBytes(tileRoot(nativeSha256, hashes), parent.subarray(at, at + HASH_BYTES))) {
      throw mismatch(`tile ${level}/${index} does not have the root that the tile above it states`);
    }
    if (level > 0) this.checked.set(name, hashes);
    return hashes;
  }

  /** Stops the publisher unless the entries are the leaves of the tree from `first` on. */
  requireLeaves(first: number, entries: readonly Uint8Array[], tile: Uint8Array): void {
    entries.forEach((entry, i) => {
      const at = ((first + i) % TILE_WIDTH) * HASH_BYTES;
      if (!equalBytes(leafHash(nativeSha256, entry), tile.subarray(at, at + HASH_BYTES))) {
        throw mismatch(`the row of leaf ${first + i} does not match its leaf hash in the tree`);
      }
    });
  }

  private readonly unchecked: TileReader = async (level, index, width) => {
    const hashes = await this.fetch(level, index);
    if (hashes === null || hashes.length < width * HASH_BYTES) {
      throw mismatch(`tile ${level}/${index} does not hold ${width} hashes`);
    }
    return hashes;
  };
}

/** Errors for a registry that contradicts the published log, with the next step. */
function mismatch(what: string): FatalPublishError {
  return new FatalPublishError(
    'tree_mismatch',
    `The registry contradicts itself: ${what}. Publishing has stopped; published proofs that fail now are withdrawn first.  ` +
      'Restore the database from a backup that holds at least every published leaf, and start the publisher again.',
  );
}

const IF_LOST =
  'Run "npm run admin -- log lost" to list the affected proofs from the published files. ' +
  'If they are lost for good, retire the log: stop every publisher, run "npm run admin -- log end", and start a publisher ' +
  'with a new LOG_ORIGIN, a new log key and an empty SNAPSHOT_DIR; keep serving the old directory as evidence.';

export function behind(size: number, published: number, what: string): FatalPublishError {
  return new FatalPublishError(
    'database_behind',
    `The database has ${size} verified leaves, but ${what} covers ${published}: it was restored, or failed over, to an older state, ` +
      `and publishing from it would fork the log. Restore a database that holds every published leaf and start the publisher again. ${IF_LOST}`,
  );
}

export function forked(size: number, what: string): FatalPublishError {
  return new FatalPublishError(
    'log_forked',
    `The log in the database does not extend the ${size} leaves of ${what}: published leaves were replaced.  ` +
      `Restore a database that holds them and start the publisher again. ${IF_LOST}`,
  );
}

export function ended(origin: string): FatalPublishError {
  return new FatalPublishError(
    'log_ended',
    `The log ${origin} is retired in this database ("admin log end"), and no publisher signs for it again. ` +
      'Start the publisher with the LOG_ORIGIN, log key and SNAPSHOT_DIR of the log that replaces it.',
  );
}
