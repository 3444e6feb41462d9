import { equalBytes, toHex } from '#protocol/bytes';
import { openCheckpointNote } from '#protocol/checkpoint';
import { ProtocolError } from '#protocol/errors';
import { leafHash } from '#protocol/merkle';
import { type Tile, TILE_WIDTH } from '#protocol/tiles';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { type Pool, readSnapshot } from '#sql/db/transaction';
import { type Chunk, type StoredLeaf, readHead } from '#sql/fsck/log';
import { readTile, type StoredCheckpoint } from '#sql/log/log';
import type { FindingCode, Report } from '../findings.js';
import {
  firstDifference,
  GrowingTree,
  resolveTile,
  type ResolvedTile,
  type TreeState,
} from '../tree.js';
import type { SignedHead } from '../snapshot/log.js';
import { isConsistent } from './check-leaf.js';
import type { RegistryContext } from './context.js';
import type { ChunkVerdicts } from './verdicts.js';

/** A signed head of the log, and the finding to report if the root computed from the rows differs. */
export interface Anchor extends SignedHead {
  code: FindingCode;
}

export interface LogTreeState {
  tree: TreeState;
  /** Set after the first reported root mismatch, because every later root differs too. */
  reported: { signed: boolean; verified: boolean };
  /** The tree cannot be continued: a leaf and its hash are both lost. */
  isBroken: boolean;
}

/** Compares the tree of the leaves with every stored tile and every known root. */
export class LogTree {
  private readonly tree: GrowingTree;
  private readonly reported: LogTreeState['reported'];
  private isBroken: boolean;

  constructor(
    private readonly ctx: RegistryContext,
    private readonly anchors: readonly Anchor[],
    state?: LogTreeState,
  ) {
    this.tree = new GrowingTree(state?.tree);
    this.reported = { ...(state?.reported ?? { signed: false, verified: false }) };
    this.isBroken = state?.isBroken ?? false;
  }

  get size(): number {
    return this.tree.size;
  }

  get state(): LogTreeState {
    return { tree: this.tree.state, reported: { ...this.reported }, isBroken: this.isBroken };
  }

  /**
   * Determines the leaf hashes of one tile from their rows and the stored tiles.
   *
   * @param signed roots of checkpoints, by size
   */
  resolve(
    chunk: Chunk,
    leaves: ReadonlyMap<number, StoredLeaf>,
    range: { start: number; end: number },
    signed: ReadonlyMap<number, Uint8Array>,
  ): ResolvedTile {
    const { start, end } = range;
    const index = start / TILE_WIDTH;
    const rows = Array.from({ length: end - start }, (_, place) => {
      const leaf = leaves.get(start + place);
      return leaf === undefined ? null : leafHash(nativeSha256, leaf.entry);
    });
    const tileAt = (level: number, at: number): Uint8Array | null =>
      chunk.tiles.find((one) => one.level === level && one.index === at)?.hashes ?? null;
    return resolveTile({
      index,
      rows,
      stored: tileAt(0, index),
      above: tileAt(1, Math.floor(index / TILE_WIDTH)),
      tree: this.isBroken ? null : this.tree,
      signed,
      isSound: (place) => {
        const leaf = leaves.get(start + place);
        return leaf !== undefined && isConsistent(leaf, this.ctx.keys, rows[place]!);
      },
    });
  }

  /** The root of the leaves so far; null once a leaf and its hash are lost. */
  root(): Uint8Array | null {
    return this.isBroken ? null : this.tree.root();
  }

  /** @param hash the hash of the next leaf; undefined when unknown */
  async append(
    hash: Uint8Array | undefined,
    signed: ReadonlyMap<number, Uint8Array>,
    verdicts: ChunkVerdicts,
  ): Promise<void> {
    const { findings } = this.ctx;
    if (hash === undefined && !this.isBroken) {
      this.isBroken = true;
      const from = `the tree from leaf ${this.tree.size} on`;
      findings.unchecked(`${from}: the row and the hash of this leaf are both lost`);
    }
    const full = this.tree.append(hash ?? new Uint8Array(32));
    if (this.isBroken) return;
    for (const tile of full) await this.checkTile(tile);
    this.reported.verified ||= verdicts.reportRootMismatch(this.tree);
    this.checkRoots(signed.get(this.tree.size));
  }

  /** Checks the partial tiles at the end of the log. */
  async finish(): Promise<void> {
    if (this.isBroken) return;
    for (const tile of this.tree.partial()) await this.checkTile(tile);
  }

  private checkRoots(signed: Uint8Array | undefined): void {
    const { size } = this.tree;
    const anchors = this.anchors.filter((anchor) => anchor.size === size);
    if (this.reported.signed || (signed === undefined && anchors.length === 0)) return;
    const root = this.tree.root();
    const expected = (other: Uint8Array): string =>
      `root ${toHex(other)} of the first ${size} leaves, found ${toHex(root)}`;
    if (signed !== undefined && !equalBytes(signed, root)) {
      this.reported.signed = true;
      const where = `svc.checkpoint tree_size=${size}`;
      this.ctx.findings.add('checkpoint_root_differs', where, expected(signed));
    }
    for (const anchor of anchors) {
      if (equalBytes(anchor.root, root)) continue;
      this.reported.signed = true;
      this.ctx.findings.add(anchor.code, anchor.where, expected(anchor.root));
    }
  }

  private async checkTile({ level, index, hashes }: Tile): Promise<void> {
    const { sql, findings } = this.ctx;
    const where = `svc.tile level=${level} tile_index=${index}`;
    const stored = await readTile(sql, level, index);
    if (stored === null) {
      findings.add('tile_missing', where, `a tile of ${hashes.length / 32} hashes`);
      return;
    }
    const at = firstDifference(stored, hashes);
    if (at === null) return;
    const hash = toHex(hashes.subarray(at, at + 32));
    findings.add('tile_altered', where, `${hash} at offset ${at}`);
  }
}

/** Returns the size of the log; reports rows beyond this size, which the log lost or never had. */
export async function checkHead(sql: Pool, report: Report): Promise<number> {
  const head = await readSnapshot(sql, readHead);
  const { size } = head;
  if (head.isMissing) report('log_head_missing', 'svc.log_head', `a row with tree_size ${size}`);
  for (const index of head.entriesBeyond) {
    report('leaf_beyond_head', `svc.log_entry leaf_index=${index}`, `no leaf at ${size} or beyond`);
  }
  for (const { level, index, hashes } of head.tilesBeyond) {
    const where = `svc.tile level=${level} tile_index=${index}`;
    const expected = `a tile of a log of ${size} leaves, found ${hashes} hashes`;
    report('tile_beyond_head', where, expected);
  }
  if (head.lastCheckpoint > head.size) {
    const where = `svc.checkpoint tree_size=${head.lastCheckpoint}`;
    report('checkpoint_beyond_log', where, `at most ${size} leaves, the size of the log`);
  }
  if (head.lastVerdict > head.size) {
    const where = `svc.verdict last_index=${head.lastVerdict - 1}`;
    report('verdict_beyond_log', where, `verdicts on at most ${size} leaves`);
  }
  return head.size;
}

/**
 * Returns the root of a stored checkpoint, or null after reporting that no pinned key signed the
 * checkpoint. Also reports columns that differ from the note.
 */
export function signedRoot(
  { logVkeys, findings }: RegistryContext,
  { treeSize, root, note }: StoredCheckpoint,
): Uint8Array | null {
  const where = `svc.checkpoint tree_size=${treeSize}`;
  try {
    const { checkpoint } = openCheckpointNote(note, logVkeys, logVkeys[0].name, nativeVerify);
    if (checkpoint.size !== treeSize || !equalBytes(checkpoint.root, root)) {
      const signed = `size ${checkpoint.size} and root ${toHex(checkpoint.root)}`;
      findings.add('checkpoint_altered', where, `columns that match the signed note, ${signed}`);
    }
    return checkpoint.size === treeSize ? checkpoint.root : null;
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    const expected = `a note signed by ${logVkeys[0].name}: ${error.message}`;
    findings.add('checkpoint_unverifiable', where, expected);
    return null;
  }
}
