import { equalBytes, fromBase64, toBase64 } from '#protocol/bytes';
import { CompactRange, HASH_BYTES } from '#protocol/merkle';
import { type Tile, TILE_WIDTH, tileRoot } from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';

export interface TreeState {
  size: number;
  /** The hashes of each level's partial tile, in base64. */
  edge: string[];
}

/**
 * Recomputes the log's tree leaf by leaf: its root at every size, and every tile once. Keeps only
 * the hashes at the right edge.
 */
export class GrowingTree {
  size: number;
  /** The hashes of the partial tile of each level. */
  private edge: Uint8Array[][];

  constructor(state: TreeState = { size: 0, edge: [] }) {
    this.size = state.size;
    this.edge = state.edge.map((hashes) => split(fromBase64(hashes)));
  }

  /** The hashes of the perfect subtrees, largest first. */
  subtrees(): Uint8Array[] {
    return this.edge
      .toReversed()
      .flatMap((tile) => appended(new CompactRange(nativeSha256), tile).hashes);
  }

  /** The root that the tree would have after these leaves are appended. */
  root(leafHashes: readonly Uint8Array[] = []): Uint8Array {
    const range = new CompactRange(nativeSha256, { size: this.size, hashes: this.subtrees() });
    return appended(range, leafHashes).root();
  }

  /** Appends a leaf and returns the tiles that it completes, lowest level first. */
  append(leafHash: Uint8Array): Tile[] {
    this.size += 1;
    const full: Tile[] = [];
    let hash = leafHash;
    for (let level = 0; ; level++) {
      const tile = (this.edge[level] ??= []);
      tile.push(hash);
      if (tile.length < TILE_WIDTH) return full;
      const hashes = Buffer.concat(tile);
      const index = this.size / TILE_WIDTH ** (level + 1) - 1;
      full.push({ level, index, hashes });
      this.edge[level] = [];
      hash = tileRoot(nativeSha256, hashes);
    }
  }

  partial(): Tile[] {
    return this.edge.flatMap((tile, level) => {
      if (tile.length === 0) return [];
      const index = Math.floor(this.size / TILE_WIDTH ** (level + 1));
      return [{ level, index, hashes: Buffer.concat(tile) }];
    });
  }

  get state(): TreeState {
    return { size: this.size, edge: this.edge.map((tile) => toBase64(Buffer.concat(tile))) };
  }
}

function appended(range: CompactRange, hashes: readonly Uint8Array[]): CompactRange {
  for (const hash of hashes) range.append(hash);
  return range;
}

export function split(hashes: Uint8Array): Uint8Array[] {
  return Array.from({ length: Math.floor(hashes.length / HASH_BYTES) }, (_, i) =>
    hashes.subarray(i * HASH_BYTES, (i + 1) * HASH_BYTES),
  );
}

/** The position of the first different or missing hash in a stored tile; null when equal. */
export function firstDifference(stored: Uint8Array, expected: Uint8Array): number | null {
  for (let at = 0; at < expected.length; at += HASH_BYTES) {
    const end = at + HASH_BYTES;
    if (!equalBytes(stored.subarray(at, end), expected.subarray(at, end))) return at;
  }
  return null;
}

/** Two sources for the hashes of a range of leaves, and the evidence to decide between them. */
interface TileClaims {
  index: number;
  /** The hashes of the log rows; null for a missing row. */
  rows: readonly (Uint8Array | null)[];
  /** The hashes of the stored tile; null when the tile is missing. */
  stored: Uint8Array | null;
  /** The stored tile above, which has the root of these leaves if they fill a tile. */
  above: Uint8Array | null;
  /** The tree of the leaves before these; null when unknown. */
  tree: GrowingTree | null;
  /** The roots of signed checkpoints by size, ascending. */
  signed: ReadonlyMap<number, Uint8Array>;
  /** Whether a leaf's row is consistent: its signature and hashes match. */
  isSound: (place: number) => boolean;
}

export interface ResolvedTile {
  /** The hashes of the leaves; null when a row is missing and no tile has its hash. */
  hashes: Uint8Array[] | null;
  /** Positions of the rows whose hash differs from the leaf hash. */
  wrongRows: Set<number>;
}

/**
 * Decides which source is damaged when they differ, so that one flipped byte gives one finding. A
 * source that the tile above or a signed checkpoint confirms is right, as far as the checkpoint
 * covers it. Without evidence, a consistent row wins over the tile.
 */
export function resolveTile(claims: TileClaims): ResolvedTile {
  const { rows, stored, isSound } = claims;
  const count = rows.length;
  const tile = stored === null ? [] : split(stored).slice(0, count);
  const differing = rows.flatMap((row, place) => {
    const other = tile[place];
    return row !== null && other !== undefined && equalBytes(row, other) ? [] : [place];
  });
  if (differing.length === 0) return { hashes: tile, wrongRows: new Set() };
  const whole = rows.filter((row) => row !== null);
  const rightRows = whole.length === count ? confirmed(claims, whole) : 0;
  if (rightRows === count) return { hashes: whole, wrongRows: new Set() };
  const rightHashes = tile.length === count ? confirmed(claims, tile) : 0;
  if (rightHashes === count) return { hashes: tile, wrongRows: new Set(differing) };
  const wrongRows = new Set(
    differing.filter((place) => {
      if (rows[place] === null) return true;
      if (tile[place] === undefined || place < rightRows) return false;
      return place < rightHashes || !isSound(place);
    }),
  );
  const hashes = rows.map((row, place) => (wrongRows.has(place) ? tile[place] : row));
  return {
    hashes: hashes.every((hash) => hash !== undefined && hash !== null) ? hashes : null,
    wrongRows,
  };
}

/** The number of hashes, from the first on, that the tile above or a signed checkpoint confirms. */
function confirmed(
  { index, above, tree, signed }: TileClaims,
  hashes: readonly Uint8Array[],
): number {
  const at = (index % TILE_WIDTH) * HASH_BYTES;
  const parent = above?.subarray(at, at + HASH_BYTES);
  if (
    parent?.length === HASH_BYTES &&
    hashes.length === TILE_WIDTH &&
    equalBytes(tileRoot(nativeSha256, Buffer.concat(hashes)), parent)
  ) {
    return hashes.length;
  }
  const start = index * TILE_WIDTH;
  const head = [...signed].findLast(([size]) => size > start && size <= start + hashes.length);
  if (head === undefined || tree === null) return 0;
  const [size, root] = head;
  return equalBytes(tree.root(hashes.slice(0, size - start)), root) ? size - start : 0;
}
