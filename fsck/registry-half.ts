import { equalBytes } from '#protocol/bytes';
import { rootFromTiles } from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import { keyEntries, readTile } from '#sql/log/log';
import type { Findings } from './findings.js';
import type { ChunkCheckResult } from './registry/check-leaf.js';
import {
  checkAdmissions,
  checkBatches,
  checkStrays,
  checkStoredInputs,
} from './registry/admissions.js';
import { type RegistryContext, KeyHistory } from './registry/context.js';
import { checkGrants, checkRevocations } from './registry/lifecycle.js';
import { checkHead, type Anchor } from './registry/log-tree.js';
import { RegistryWalk, type WalkState } from './registry/walk.js';
import type { FsckOptions, RunState } from './state.js';
import { GrowingTree } from './tree.js';

/** Findings that the log was longer. */
const CUT = ['checkpoint_beyond_log', 'verdict_beyond_log', 'tile_beyond_head'] as const;

/** Checks the database. */
export class RegistryHalf {
  private walk: RegistryWalk;

  private constructor(
    readonly ctx: RegistryContext,
    private readonly options: Pick<FsckOptions, 'progress' | 'waitMs'>,
    /** Roots from the public snapshot. */
    private readonly anchors: readonly Anchor[],
  ) {
    this.walk = new RegistryWalk(ctx, anchors);
  }

  static async open(
    registry: NonNullable<FsckOptions['registry']>,
    options: Pick<FsckOptions, 'progress' | 'waitMs'>,
    findings: Findings,
    anchors: readonly Anchor[],
  ): Promise<RegistryHalf> {
    const size = await checkHead(registry.sql, findings.add);
    const keys = KeyHistory.read(await keyEntries(registry.sql), size);
    for (const anchor of anchors) {
      if (anchor.size <= size) continue;
      const expected = `at most ${size} leaves, as the database has, found ${anchor.size}`;
      findings.add('checkpoint_beyond_log', anchor.where, expected);
    }
    return new RegistryHalf({ ...registry, findings, keys, size }, options, anchors);
  }

  get size(): number {
    return this.ctx.size;
  }

  get state(): WalkState {
    return this.walk.snapshot();
  }

  /**
   * Resumes a run if its tree matches the log of this database at its size. Returns the leaf to continue
   * from.
   */
  async resume(run: RunState | null): Promise<number> {
    const before = run?.walk ?? null;
    const isSame = before !== null && (await this.hasTree(before));
    this.walk = new RegistryWalk(this.ctx, this.anchors, isSame ? before : undefined);
    return this.walk.position;
  }

  private async hasTree({ log: { tree: state, isBroken } }: WalkState): Promise<boolean> {
    if (state.size === 0 || state.size > this.ctx.size) return false;
    if (isBroken) return true;
    try {
      const root = await rootFromTiles(nativeSha256, state.size, async (level, index) => {
        return (await readTile(this.ctx.sql, level, index)) ?? new Uint8Array();
      });
      return equalBytes(root, new GrowingTree(state).root());
    } catch {
      return false; // A tile is missing: the walk reports it.
    }
  }

  async step(from: number, to: number): Promise<ChunkCheckResult | null> {
    const end = Math.min(to, this.ctx.size);
    return from < end ? this.walk.step(end) : null;
  }

  /** Checks what is not in log order: admissions, shares, batches and decision inputs. */
  async finish(): Promise<void> {
    const { ctx, options } = this;
    await this.walk.finish();
    let done = 0;
    const { counts } = ctx.findings.state;
    const isCut = CUT.some((code) => (counts[code] ?? 0) > 0);
    await checkAdmissions(ctx, isCut || this.walk.hasDamagedLeaf, options.waitMs, (rows) => {
      done += rows;
      options.progress('admissions', done, Math.max(done, ctx.size));
    });
    await checkRevocations(ctx);
    await checkStoredInputs(ctx);
    await checkGrants(ctx);
    await checkBatches(ctx);
    await checkStrays(ctx);
  }
}
