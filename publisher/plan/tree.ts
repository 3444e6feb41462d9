import { equalBytes, toHex } from '#protocol/bytes';
import type { Sha256 } from '#protocol/hash';
import { HASH_BYTES, leafHash, verifyConsistency } from '#protocol/merkle';
import {
  consistencyFromTiles,
  rootFromTiles,
  TILE_WIDTH,
  tileWidth,
  type TileReader,
} from '#protocol/tiles';
import { tileRoot } from '#protocol/tiles/append';
import { FatalPublishError } from '../errors.js';

export interface TreeHead {
  size: number;
  root: Uint8Array;
}

/**
 * The tree as the registry's tiles have it, every tile of which is checked, from the verifier's
 * root downwards, before it is used: what is published is what was verified, even if somebody
 * changed a tile in between.
 */
export class VerifiedTree {
  /**
   * Checked tiles: the partial ones, and the full ones above the leaves (of which there are few;
   * full leaf tiles are asked for once each).
   */
  private readonly checked = new Map<string, Uint8Array>();

  private constructor(
    private readonly sha256: Sha256,
    readonly head: TreeHead,
    private readonly fetch: (level: number, index: number) => Promise<Uint8Array | null>,
  ) {}

  /** Takes the tree of `head.size` leaves, if its tiles do have the root that the verifier found. */
  static async open(
    sha256: Sha256,
    head: TreeHead,
    fetch: (level: number, index: number) => Promise<Uint8Array | null>,
  ): Promise<VerifiedTree> {
    const tree = new VerifiedTree(sha256, head, fetch);
    // The root is made of the partial tiles, all of them and every hash in them, so it checks them.
    const edge = new Map<string, Uint8Array>();
    const root = await rootFromTiles(sha256, head.size, async (level, index, width) => {
      const hashes = (await tree.unchecked(level, index, width)).slice(0, width * HASH_BYTES);
      if (width < TILE_WIDTH) edge.set(`${level}/${index}`, hashes);
      return hashes;
    });
    if (!equalBytes(root, head.root)) {
      throw mismatch(
        `the tiles of the first ${head.size} leaves have the root ${toHex(root)}, the verifier found ${toHex(head.root)}`,
      );
    }
    for (const [name, hashes] of edge) tree.checked.set(name, hashes);
    return tree;
  }

  /** Stops the publisher unless this tree extends the one that `earlier` heads. */
  async requireExtends(earlier: TreeHead, what: string): Promise<void> {
    if (earlier.size > this.head.size) throw behind(this.head.size, earlier.size, what);
    const path = await consistencyFromTiles(
      this.sha256,
      earlier.size,
      this.head.size,
      this.unchecked,
    );
    const consistent = verifyConsistency(this.sha256, {
      size1: earlier.size,
      root1: earlier.root,
      size2: this.head.size,
      root2: this.head.root,
      path,
    });
    if (!consistent) throw forked(earlier.size, what);
  }

  /** A tile of this tree, cut to the width that it has in it. */
  async tile(level: number, index: number): Promise<Uint8Array> {
    const name = `${level}/${index}`;
    const known = this.checked.get(name);
    if (known !== undefined) return known;
    if (tileWidth(level, index, this.head.size) !== TILE_WIDTH) {
      throw mismatch(`tile ${level}/${index} is not one that its root is made of`);
    }
    const hashes = (await this.unchecked(level, index, TILE_WIDTH)).slice();
    // A full tile is one hash of the tile above it.
    const parent = await this.tile(level + 1, Math.floor(index / TILE_WIDTH));
    const at = (index % TILE_WIDTH) * HASH_BYTES;
    if (!equalBytes(tileRoot(this.sha256, hashes), parent.subarray(at, at + HASH_BYTES))) {
      throw mismatch(`tile ${level}/${index} does not have the root that the tile above it states`);
    }
    if (level > 0) this.checked.set(name, hashes);
    return hashes;
  }

  /** Stops the publisher unless the entries are the leaves that the tree has from `first` on. */
  requireLeaves(first: number, entries: readonly Uint8Array[], tile: Uint8Array): void {
    entries.forEach((entry, i) => {
      const at = ((first + i) % TILE_WIDTH) * HASH_BYTES;
      if (!equalBytes(leafHash(this.sha256, entry), tile.subarray(at, at + HASH_BYTES))) {
        throw mismatch(`the row of leaf ${first + i} is not what the tree committed to`);
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

/** What the three ways in which a registry can contradict the public mean, and what to do. */
function mismatch(what: string): FatalPublishError {
  return new FatalPublishError(
    'tree_mismatch',
    `The registry contradicts itself: ${what}. Nothing of it can be published, except that published proofs which fail now are withdrawn. ` +
      'Restore the database from a backup that holds at least every published leaf, and start the publisher again.',
  );
}

const IF_LOST =
  'Which proofs are concerned, "npm run admin -- log lost" lists from the published files. ' +
  'If they are lost for good, this log has ended: stop every publisher, say so with "npm run admin -- log end", and start a publisher ' +
  'with a new LOG_ORIGIN, a new log key and an empty SNAPSHOT_DIR; keep the old directory, and go on serving it, as evidence.';

export function behind(size: number, published: number, what: string): FatalPublishError {
  return new FatalPublishError(
    'database_behind',
    `The database has ${size} verified leaves, but ${what} covers ${published}: it was restored, or failed over, to an older state, ` +
      `and continuing there would fork the log. Bring back a database that holds every published leaf and start the publisher again. ${IF_LOST}`,
  );
}

export function forked(size: number, what: string): FatalPublishError {
  return new FatalPublishError(
    'log_forked',
    `The log in the database does not extend the ${size} leaves of ${what}: leaves that the public has seen were replaced. ` +
      `Bring back a database that holds them and start the publisher again. ${IF_LOST}`,
  );
}

export function ended(origin: string): FatalPublishError {
  return new FatalPublishError(
    'log_ended',
    `The log ${origin} was ended in this database ("admin log end"), and nothing is signed for it again. ` +
      'Start the publisher with the LOG_ORIGIN of the log that goes on, its log key and its SNAPSHOT_DIR.',
  );
}
