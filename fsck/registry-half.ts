import { equalBytes } from '#protocol/bytes';
import type { Vkey } from '#protocol/note';
import { rootFromTiles } from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Pool } from '#sql/db/transaction';
import { latestCheckpointTime } from '#sql/fsck/head';
import { keyEntries, readTile } from '#sql/log/log';
import { lastVerdictId } from '#sql/log/verdicts';
import type { Findings } from './findings.js';
import type { ChunkCheckResult } from './registry/check-leaf.js';
import { checkAdmissions } from './registry/admissions.js';
import { checkBatches } from './registry/batches.js';
import type { RegistryContext } from './registry/context.js';
import { checkDecisions } from './registry/policy-inputs.js';
import { checkGrants } from './registry/grants.js';
import { checkHead } from './registry/head.js';
import { KeyHistory } from './registry/keys.js';
import { checkRevocations } from './registry/revocations.js';
import { checkOrphanRows } from './registry/orphan-rows.js';
import type { Anchor } from './registry/log-tree.js';
import { RegistryWalk, type WalkState } from './registry/walk.js';
import type { FsckOptions } from './options.js';
import { GrowingTree } from './tree.js';
import type { RunState } from './state.js';

/** Checks the database. */
export class RegistryHalf {
  readonly ctx: RegistryContext;
  private walk: RegistryWalk;
  private anchors: readonly Anchor[] = [];

  constructor(
    registry: { sql: Pool; logVkeys: readonly [Vkey, ...Vkey[]] },
    private readonly options: Pick<FsckOptions, 'progress' | 'waitMs'>,
    findings: Findings,
  ) {
    this.ctx = { ...registry, findings, keys: new KeyHistory([], 0), size: 0 };
    this.walk = new RegistryWalk(this.ctx, []);
  }

  get size(): number {
    return this.ctx.size;
  }

  get state(): WalkState {
    return this.walk.snapshot();
  }

  /** @param anchors roots from the public snapshot */
  async open(anchors: readonly Anchor[]): Promise<void> {
    const { ctx } = this;
    ctx.size = await checkHead(ctx.sql, ctx.findings.add);
    ctx.keys = KeyHistory.read(await keyEntries(ctx.sql), ctx.size);
    this.anchors = anchors;
    for (const { size, where } of anchors) {
      if (size <= ctx.size) continue;
      const expected = `at most ${String(ctx.size)} leaves, as the database has, found ${String(size)}`;
      ctx.findings.add('checkpoint_beyond_log', where, expected);
    }
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
    await checkAdmissions(ctx, this.walk.damagedLeaves, options.waitMs, (rows) => {
      done += rows;
      options.progress('admissions', done, Math.max(done, 2 * ctx.size));
    });
    await checkRevocations(ctx);
    await checkDecisions(ctx);
    await checkGrants(ctx);
    await checkBatches(ctx);
    await checkOrphanRows(ctx);
  }

  lastVerdictId(): Promise<number> {
    return lastVerdictId(this.ctx.sql);
  }

  /** The largest checkpoint and its age by the database clock. */
  latestCheckpoint(): Promise<{ size: number; ageMs: number } | null> {
    return latestCheckpointTime(this.ctx.sql);
  }
}
