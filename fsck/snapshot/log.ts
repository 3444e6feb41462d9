import { equalBytes, toHex } from '#protocol/bytes';
import { attempt } from '#protocol/errors';
import { leafHash } from '#protocol/merkle';
import {
  decodeEntryBundle,
  entriesPath,
  type Tile,
  TILE_WIDTH,
  tilePath,
  tileWidth,
} from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import { firstDifference, GrowingTree, resolveTile } from '../tree.js';
import type { SnapshotContext } from './heads.js';

export interface SignedHead {
  size: number;
  root: Uint8Array;
  where: string;
}

/**
 * Reads the whole log like a C2SP client: every bundle and tile must match the leaves, and their
 * roots must be the signed roots of location and checkpoint.
 *
 * @returns whether every entry could be read
 */
export async function checkPublicLog(
  ctx: SnapshotContext,
  heads: readonly SignedHead[],
  step: (leaves: number) => void,
): Promise<boolean> {
  const size = Math.max(...heads.map((head) => head.size));
  const tree = new GrowingTree();
  const reader = new PublicTiles(ctx, size);
  let isSigned = true;
  let isWhole = true;
  for (let start = 0; start < size; start += TILE_WIDTH) {
    const leaves = await leavesOf(ctx, reader, tree, heads, start, size);
    isWhole &&= leaves.isWhole;
    if (leaves.hashes === null) {
      ctx.findings.unchecked(`the public log from leaf ${start} on: its bundle and tile are lost`);
      return false;
    }
    for (const hash of leaves.hashes) {
      for (const tile of tree.append(hash)) await reader.check(tile);
      const signed = heads.filter(({ size }) => size === tree.size);
      for (const head of signed.filter(({ root }) => !equalBytes(root, tree.root()))) {
        isSigned = false;
        const expected = `root ${toHex(head.root)} of ${head.size} leaves, found ${toHex(tree.root())}`;
        ctx.findings.add('public_root_differs', head.where, expected);
      }
    }
    step(leaves.hashes.length);
  }
  for (const tile of tree.partial()) await reader.check(tile);
  return isWhole && isSigned;
}

/**
 * Returns the leaf hashes of one tile, null when bundle and tile are both lost. `isWhole`: every
 * entry could be read.
 */
async function leavesOf(
  ctx: SnapshotContext,
  reader: PublicTiles,
  tree: GrowingTree,
  heads: readonly SignedHead[],
  start: number,
  size: number,
): Promise<{ hashes: Uint8Array[] | null; isWhole: boolean }> {
  const index = start / TILE_WIDTH;
  const width = tileWidth(0, index, size);
  const path = entriesPath(index, width);
  const bundle = await ctx.files.read(path);
  const entries = (bundle && attempt(() => decodeEntryBundle(bundle))) ?? [];
  const rows = Array.from({ length: width }, (_, i) => {
    const entry = entries[i];
    return entry === undefined ? null : leafHash(nativeSha256, entry);
  });
  const resolved = resolveTile({
    index,
    rows,
    stored: await reader.tile(0, index),
    above: await reader.above(index),
    tree,
    signed: new Map(heads.map(({ size, root }) => [size, root])),
    isSound: () => false,
  });
  if (bundle === null) {
    ctx.findings.add('bundle_missing', path, `an entry bundle of ${width} entries`);
  } else if (resolved.wrongRows.size > 0 || entries.length !== width) {
    const first = Math.min(...resolved.wrongRows, entries.length);
    const expected = `entries that are the leaves of the log; entry ${start + first} differs from its leaf`;
    ctx.findings.add('bundle_altered', path, expected);
  }
  const isWhole = resolved.wrongRows.size === 0 && entries.length === width;
  return { hashes: resolved.hashes, isWhole };
}

class PublicTiles {
  private upper: { index: number; hashes: Uint8Array | null } | null = null;

  constructor(
    private readonly ctx: SnapshotContext,
    private readonly size: number,
  ) {}

  tile(level: number, index: number): Promise<Uint8Array | null> {
    return this.ctx.files.read(tilePath(level, index, tileWidth(level, index, this.size)));
  }

  /** The tile above a full leaf tile; null for a partial leaf tile. */
  async above(index: number): Promise<Uint8Array | null> {
    if (tileWidth(0, index, this.size) < TILE_WIDTH) return null;
    const above = Math.floor(index / TILE_WIDTH);
    if (this.upper?.index !== above)
      this.upper = { index: above, hashes: await this.tile(1, above) };
    return this.upper.hashes;
  }

  async check({ level, index, hashes }: Tile): Promise<void> {
    const path = tilePath(level, index, hashes.length / 32);
    const stored = await this.ctx.files.read(path);
    if (stored === null) {
      this.ctx.findings.add('public_tile_missing', path, `${hashes.length / 32} hashes`);
      return;
    }
    const at =
      firstDifference(stored, hashes) ?? (stored.length === hashes.length ? null : hashes.length);
    if (at === null) return;
    const expected = `${toHex(hashes.subarray(at, at + 32)) || 'its end'} at offset ${at}`;
    this.ctx.findings.add('public_tile_altered', path, expected);
  }
}
