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
 */
export class PublicLog {
  private readonly size: number;
  private readonly tree = new GrowingTree();
  private upper: { index: number; hashes: Uint8Array | null } | null = null;

  constructor(
    private readonly ctx: SnapshotContext,
    private readonly heads: readonly SignedHead[],
  ) {
    this.size = Math.max(...heads.map((head) => head.size));
  }

  /** Returns whether every entry matches the log, and every signed root the tree. */
  async check(step: (leaves: number) => void): Promise<boolean> {
    const { findings } = this.ctx;
    let isRight = true;
    for (let start = 0; start < this.size; start += TILE_WIDTH) {
      const { hashes, isWhole } = await this.leavesFrom(start);
      isRight &&= isWhole;
      if (hashes === null) {
        findings.unchecked(`the public log from leaf ${start} on: its bundle and tile are lost`);
        return false;
      }
      for (const hash of hashes) {
        for (const tile of this.tree.append(hash)) await this.checkTile(tile);
        for (const head of this.heads.filter(({ size }) => size === this.tree.size)) {
          const root = this.tree.root();
          if (equalBytes(head.root, root)) continue;
          isRight = false;
          const expected = `root ${toHex(head.root)} of ${head.size} leaves, found ${toHex(root)}`;
          findings.add('public_root_differs', head.where, expected);
        }
      }
      step(hashes.length);
    }
    for (const tile of this.tree.partial()) await this.checkTile(tile);
    return isRight;
  }

  /**
   * The leaf hashes of one tile; null when bundle and tile are both lost. `isWhole`: every entry is
   * readable and matches its leaf.
   */
  private async leavesFrom(start: number) {
    const { files, findings } = this.ctx;
    const index = start / TILE_WIDTH;
    const width = tileWidth(0, index, this.size);
    const path = entriesPath(index, width);
    const bundle = await files.read(path);
    const entries = (bundle && attempt(() => decodeEntryBundle(bundle))) ?? [];
    const { hashes, wrongRows } = resolveTile({
      index,
      rows: Array.from({ length: width }, (_, i) => {
        const entry = entries[i];
        return entry === undefined ? null : leafHash(nativeSha256, entry);
      }),
      stored: await this.tile(0, index),
      above: width < TILE_WIDTH ? null : await this.above(index),
      tree: this.tree,
      signed: new Map(this.heads.map(({ size, root }) => [size, root])),
      isSound: () => false,
    });
    const isWhole = wrongRows.size === 0 && entries.length === width;
    if (bundle === null) {
      findings.add('bundle_missing', path, `an entry bundle of ${width} entries`);
    } else if (!isWhole) {
      const first = Math.min(...wrongRows, entries.length);
      const expected = `entries that are the leaves of the log; entry ${start + first} differs from its leaf`;
      findings.add('bundle_altered', path, expected);
    }
    return { hashes, isWhole };
  }

  private tile(level: number, index: number): Promise<Uint8Array | null> {
    return this.ctx.files.read(tilePath(level, index, tileWidth(level, index, this.size)));
  }

  /** The tile above a full leaf tile. */
  private async above(leafTile: number): Promise<Uint8Array | null> {
    const index = Math.floor(leafTile / TILE_WIDTH);
    if (this.upper?.index !== index) this.upper = { index, hashes: await this.tile(1, index) };
    return this.upper.hashes;
  }

  private async checkTile({ level, index, hashes }: Tile): Promise<void> {
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
