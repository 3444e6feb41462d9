import type { Checkpoint } from '#protocol/checkpoint';
import { CHECKPOINT_PATH, LOCATION_PATH, type OpenedLocation } from '#protocol/snapshot/location';
import { latestCheckpointTime } from '#sql/fsck/log';
import type { Findings } from './findings.js';
import type { ChunkCheckResult } from './registry/check-leaf.js';
import type { Anchor } from './registry/log-tree.js';
import type { RegistryWalk } from './registry/walk.js';
import { readCheckpoint, readLocation, type SnapshotContext } from './snapshot/heads.js';
import { checkPublicLog, type SignedHead } from './snapshot/log.js';
import { RebuiltMap } from './snapshot/map.js';
import { compareShares, readShares } from './snapshot/shares.js';
import type { FsckOptions } from './state.js';

/** A running publisher publishes a checkpoint within seconds. */
const PUBLISHED_WITHIN_MS = 60_000;

/** Checks the public snapshot: the log, and the map rebuilt from the log. */
export class SnapshotHalf {
  private readonly ctx: SnapshotContext;
  private opened: OpenedLocation | null = null;
  private checkpoint: Checkpoint | null = null;
  private map: RebuiltMap | null = null;

  constructor(
    snapshot: NonNullable<FsckOptions['snapshot']>,
    private readonly options: Pick<FsckOptions, 'progress' | 'state'>,
    findings: Findings,
  ) {
    this.ctx = { ...snapshot, findings };
  }

  get published() {
    if (this.opened === null) return null;
    const { index, snapshot } = this.opened;
    return { generation: index, leaves: snapshot.logs[0]!.size };
  }

  async open(): Promise<void> {
    const { content } = this.options.state;
    this.opened = await readLocation(this.ctx, content.generation);
    // The publisher writes the location last, so a checkpoint that is read after the location
    // cannot be older.
    this.checkpoint = await readCheckpoint(this.ctx);
    if (this.opened !== null) content.generation = Math.max(content.generation, this.opened.index);
    else this.ctx.findings.unchecked('published pages, packages and share tokens');
  }

  get anchors(): Anchor[] {
    return this.heads.map((head) => ({ ...head, code: 'log_forked' }));
  }

  private get heads(): SignedHead[] {
    const heads: SignedHead[] = [];
    if (this.opened !== null) heads.push({ ...this.opened.checkpoint, where: LOCATION_PATH });
    if (this.checkpoint !== null) heads.push({ ...this.checkpoint, where: CHECKPOINT_PATH });
    return heads.sort((a, b) => a.size - b.size);
  }

  /** Compares the published size with the last signed checkpoint of the database. */
  private async compareWith({ ctx: { sql } }: RegistryWalk, head: SignedHead): Promise<void> {
    const latest = await latestCheckpointTime(sql);
    if (latest === null || latest.size <= head.size || latest.ageMs < PUBLISHED_WITHIN_MS) return;
    const signed = `the checkpoint of ${latest.size} leaves signed ${Math.floor(latest.ageMs / 1000)} s ago`;
    const found = `a checkpoint of ${head.size} leaves`;
    this.ctx.findings.add('snapshot_behind', head.where, `${signed}, found ${found}`);
  }

  /** Checks the files of the log, and rebuilds the map from its entries. */
  async readLog(registry: RegistryWalk | null): Promise<void> {
    const { heads, ctx } = this;
    const last = heads.at(-1);
    if (last === undefined) return;
    if (registry !== null) await this.compareWith(registry, last);
    const { progress } = this.options;
    let done = 0;
    const isWhole = await checkPublicLog(ctx, heads, (leaves) => {
      done += leaves;
      progress('public log', done, last.size);
    });
    if (!isWhole) {
      ctx.findings.unchecked('published records: entries of the public log are lost or damaged');
      return;
    }
    const map = new RebuiltMap(ctx, last, registry?.ctx.origins.slice(1));
    const isRebuilt = await map.check(this.opened, (size) => progress('map', size, last.size));
    if (isRebuilt) this.map = map;
  }

  async compareRecords(results: ChunkCheckResult): Promise<void> {
    for (const result of results.values()) await this.map?.compare(result);
  }

  async finish(registry: RegistryWalk | null): Promise<void> {
    if (this.opened === null) return;
    this.options.progress('shares', 0, 1);
    const published = await readShares(this.ctx, this.opened);
    if (registry === null)
      this.ctx.findings.skip('comparison of share tokens and packages with the registry');
    else if (published !== null) {
      await compareShares(this.ctx, registry.ctx, this.opened, published);
    }
    this.options.progress('shares', 1, 1);
  }
}
