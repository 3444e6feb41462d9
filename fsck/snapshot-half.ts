import type { Checkpoint } from '#protocol/checkpoint';
import {
  CHECKPOINT_PATH,
  MANIFEST_PATH,
  PACKAGE_PARTS,
  SHARE_PARTS,
  type OpenedManifest,
} from '#protocol/snapshot/manifest';
import { latestCheckpointTime } from '#sql/fsck/log';
import { lastVerdictId } from '#sql/log/verdicts';
import type { Findings } from './findings.js';
import type { ChunkCheckResult } from './registry/check-leaf.js';
import type { RegistryHalf } from './registry-half.js';
import { allPackages, allTokens } from './registry/lifecycle.js';
import type { Anchor } from './registry/log-tree.js';
import type { FsckOptions, RunState } from './state.js';
import { Bodies, checkOrphans, Parts } from './snapshot/parts.js';
import type { PublishedContext, SnapshotContext } from './snapshot/source.js';
import { checkPublicLog, type PublicLog, type SignedHead } from './snapshot/log.js';
import {
  checkGrantsInSnapshot,
  checkPackages,
  checkShares,
  dueChanges,
} from './snapshot/grants.js';
import { readCheckpoint, readManifest } from './snapshot/manifest.js';
import { checkParts } from './snapshot/part-rows.js';
import { ProofWalk, type ProofsState } from './snapshot/proofs.js';

/** A running publisher publishes a checkpoint within seconds. */
const PUBLISHED_WITHIN_MS = 60_000;

/** Everything that a manifest signed by the pinned keys refers to. */
interface Published {
  ctx: PublishedContext;
  log: PublicLog;
  parts: Parts;
  bodies: Bodies;
  proofs: ProofWalk;
}

/** Checks the public snapshot, from its manifest to the last body. */
export class SnapshotHalf {
  private readonly ctx: SnapshotContext;
  private opened: OpenedManifest | null = null;
  private checkpoint: Checkpoint | null = null;
  private log: PublicLog | null = null;
  private all: Published | null = null;

  constructor(
    snapshot: NonNullable<FsckOptions['snapshot']>,
    private readonly options: Pick<FsckOptions, 'progress' | 'now' | 'state'>,
    findings: Findings,
  ) {
    this.ctx = { ...snapshot, findings, now: () => options.now() };
  }

  get size(): number {
    return this.opened?.manifest.tree_size ?? 0;
  }

  get state(): ProofsState | null {
    return this.all?.proofs.state ?? null;
  }

  get published() {
    if (this.opened === null) return null;
    const { generation, tree_size: leaves, proofs } = this.opened.manifest;
    return { generation, leaves, proofs };
  }

  async open(): Promise<void> {
    const { state } = this.options;
    this.opened = await readManifest(this.ctx, state.generation);
    // The publisher writes the manifest last, so a checkpoint read after it cannot be older.
    this.checkpoint = await readCheckpoint(this.ctx);
    if (this.opened !== null) state.sawGeneration(this.opened.manifest.generation);
    else this.ctx.findings.unchecked('published proofs, packages and share tokens');
  }

  /** The public roots of the log. */
  get anchors(): Anchor[] {
    return this.heads.map((head) => ({ ...head, code: 'log_forked' }));
  }

  private get heads(): SignedHead[] {
    const heads: SignedHead[] = [];
    if (this.opened !== null) heads.push({ ...this.opened.checkpoint, where: MANIFEST_PATH });
    if (this.checkpoint !== null) heads.push({ ...this.checkpoint, where: CHECKPOINT_PATH });
    return heads.sort((a, b) => a.size - b.size);
  }

  /** Compares the published size with the last signed checkpoint of the database. */
  async compareWith(registry: RegistryHalf | null): Promise<void> {
    const { findings } = this.ctx;
    if (registry === null || this.opened === null) return;
    const { tree_size: size, verdict_cursor: cursor } = this.opened.manifest;
    if (cursor > (await lastVerdictId(registry.ctx.sql))) {
      const expected = `verdicts up to ${cursor}, which the snapshot contains`;
      findings.add('verdict_beyond_log', 'svc.verdict', expected);
    }
    const latest = await latestCheckpointTime(registry.ctx.sql);
    if (latest === null || latest.size <= size || latest.ageMs < PUBLISHED_WITHIN_MS) return;
    const signed = `a manifest of the ${latest.size} leaves signed ${Math.floor(latest.ageMs / 1000)} s ago`;
    const expected = `${signed}, found one of ${size}`;
    // The publisher writes the checkpoint file just before the manifest.
    const wentBack = (this.checkpoint?.size ?? 0) > size;
    findings.add(wentBack ? 'manifest_went_back' : 'snapshot_behind', MANIFEST_PATH, expected);
  }

  async readLog(): Promise<void> {
    const { heads } = this;
    if (heads.length === 0) return;
    const total = Math.max(...heads.map(({ size }) => size));
    let done = 0;
    this.log = await checkPublicLog(this.ctx, heads, this.size, (leaves) => {
      done += leaves;
      this.options.progress('public log', done, total);
    });
  }

  resume(run: RunState | null): void {
    const { opened, log } = this;
    if (opened === null || log === null) return;
    const ctx = { ...this.ctx, opened };
    const parts = new Parts(ctx, opened.manifest.index_parts);
    const bodies = new Bodies(ctx);
    const proofs = new ProofWalk(ctx, log, parts, bodies, run?.proofs ?? undefined);
    this.all = { ctx, log, parts, bodies, proofs };
  }

  async step(from: number, to: number, results: ChunkCheckResult | null): Promise<void> {
    await this.all?.proofs.step(from, to, results);
  }

  /** Checks the whole index, tokens and packages, and unreferenced files. */
  async finish(registry: RegistryHalf | null): Promise<void> {
    if (this.all === null) return;
    const { ctx, log, parts, bodies, proofs } = this.all;
    const { progress } = this.options;
    progress('index', 0, 3);
    const keys = registry?.ctx.keys.entries ?? null;
    const current = await checkParts(ctx, parts, bodies, log, proofs.state.found, keys);
    progress('index', 1, 3);
    if (registry === null) {
      ctx.findings.skip('share tokens and packages against the registry');
      await checkGrantsInSnapshot(ctx, parts, bodies);
    } else await this.checkGrants(this.all, registry, current);
    progress('index', 2, 3);
    await checkOrphans(ctx, parts);
    progress('index', 3, 3);
  }

  private async checkGrants(
    { ctx, parts, bodies }: Published,
    registry: RegistryHalf,
    current: ReadonlyMap<string, number>,
  ): Promise<void> {
    const isDue = await dueChanges(ctx, registry.ctx.sql);
    const found = { [SHARE_PARTS]: 0, [PACKAGE_PARTS]: 0 };
    for await (const tokens of allTokens(registry.ctx)) {
      found[SHARE_PARTS] += await checkShares(ctx, parts, bodies, tokens, isDue);
    }
    for await (const packages of allPackages(registry.ctx)) {
      found[PACKAGE_PARTS] += await checkPackages(ctx, parts, bodies, packages, isDue);
    }
    for (const [kind, count] of Object.entries(found)) {
      const rows = current.get(kind) ?? 0;
      if (rows <= count) continue;
      const expected = `${count} as in the registry, found ${rows}`;
      ctx.findings.add('record_unknown', `index parts of kind ${kind}`, expected);
    }
  }
}
