import { equalBytes, fromBase64, toBase64 } from '#protocol/bytes';
import { CompactRange, HASH_BYTES } from '#protocol/merkle';
import { TILE_WIDTH } from '#protocol/tiles';
import { tileRoot } from '#protocol/tiles/append';
import { nativeSha256 } from '#runtime/crypto/node';

/** A tile of the recomputed tree. */
export interface GrownTile {
  level: number;
  index: number;
  hashes: Uint8Array;
}

export interface TreeState {
  size: number;
  /** Base64. */
  range: string[];
  edge: string[];
}

/**
 * Recomputes the log's tree leaf by leaf: its root at every size, and every tile once. Keeps only the
 * right edge.
 */
export class GrowingTree {
  private range: CompactRange;
  /** The hashes of each level's partial tile. */
  private edge: Uint8Array[][];

  constructor(state?: TreeState) {
    this.range = new CompactRange(nativeSha256, {
      size: state?.size ?? 0,
      hashes: state?.range.map(fromBase64) ?? [],
    });
    this.edge = (state?.edge ?? []).map((hashes) => split(fromBase64(hashes)));
  }

  get size(): number {
    return this.range.size;
  }

  root(): Uint8Array {
    return this.range.root();
  }

  /** The root after appending these leaves. */
  rootWith(leafHashes: readonly Uint8Array[]): Uint8Array {
    const { size, hashes } = this.range;
    const range = new CompactRange(nativeSha256, { size, hashes });
    for (const hash of leafHashes) range.append(hash);
    return range.root();
  }

  /** Appends a leaf and returns the tiles that it completes, lowest level first. */
  append(leafHash: Uint8Array): GrownTile[] {
    this.range.append(leafHash);
    const full: GrownTile[] = [];
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

  /** The partial tiles. */
  partial(): GrownTile[] {
    return this.edge.flatMap((tile, level) =>
      tile.length === 0
        ? []
        : [
            {
              level,
              index: Math.floor(this.size / TILE_WIDTH ** (level + 1)),
              hashes: Buffer.concat(tile),
            },
          ],
    );
  }

  get state(): TreeState {
    return {
      size: this.size,
      range: this.range.hashes.map(toBase64),
      edge: this.edge.map((tile) => toBase64(Buffer.concat(tile))),
    };
  }
}

/** The hashes of a tile. */
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

/** A least-recently-used cache with a byte limit. */
export class ByteCache<V> {
  private readonly kept = new Map<string, { value: V; bytes: number }>();
  private bytes = 0;

  constructor(private readonly most: number) {}

  get(name: string): V | undefined {
    const found = this.kept.get(name);
    if (found === undefined) return undefined;
    this.kept.delete(name);
    this.kept.set(name, found);
    return found.value;
  }

  put(name: string, value: V, bytes: number): void {
    this.kept.set(name, { value, bytes });
    this.bytes += bytes;
    for (const [oldest, { bytes: freed }] of this.kept) {
      if (this.bytes <= this.most || this.kept.size === 1) return;
      this.kept.delete(oldest);
      this.bytes -= freed;
    }
  }
}
