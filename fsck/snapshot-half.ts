import { CHECKPOINT_PATH, LOCATION_PATH } from '#protocol/snapshot/location';
import { latestCheckpointTime } from '#sql/fsck/log';
import type { Findings } from './findings.js';
import type { ChunkCheckResult } from './registry/check-leaf.js';
import type { Anchor } from './registry/log-tree.js';
import type { RegistryWalk } from './registry/walk.js';
import { readCheckpoint, readLocation, type SnapshotContext } from './snapshot/heads.js';
import { PublicLog, type SignedHead } from './snapshot/log.js';
import { RebuiltMap } from './snapshot/map.js';
import { compareShares, readShares } from './snapshot/shares.js';
import type { FsckOptions } from './state.js';

/** A running publisher publishes a checkpoint within seconds. */
const PUBLISHED_WITHIN_MS = 60_000;

export type SnapshotHalf = Awaited<ReturnType<typeof openSnapshot>>;

/** Begins the check of the public snapshot: of the log, and of the map rebuilt from the log. */
export async function openSnapshot(
  snapshot: NonNullable<FsckOptions['snapshot']>,
  { progress, state: { content } }: Pick<FsckOptions, 'progress' | 'state'>,
  findings: Findings,
) {
  const ctx = { ...snapshot, findings };
  const opened = await readLocation(ctx, content.generation);
  // The publisher writes the location last, so a checkpoint that is read after the location
  // cannot be older.
  const checkpoint = await readCheckpoint(ctx);
  if (opened !== null) content.generation = Math.max(content.generation, opened.index);
  else findings.unchecked('published pages, packages and share tokens');
  const heads: SignedHead[] = [];
  if (opened !== null) heads.push({ ...opened.checkpoint, where: LOCATION_PATH });
  if (checkpoint !== null) heads.push({ ...checkpoint, where: CHECKPOINT_PATH });
  heads.sort((a, b) => a.size - b.size);
  let map: RebuiltMap | null = null;
  return {
    published: opened && { generation: opened.index, leaves: opened.snapshot.logs[0]!.size },
    anchors: heads.map((head): Anchor => ({ ...head, code: 'log_forked' })),
    /** Checks the files of the log, and rebuilds the map from its entries. */
    readLog: async (registry: RegistryWalk | null): Promise<void> => {
      const last = heads.at(-1);
      if (last === undefined) return;
      if (registry !== null) await compareSize(ctx, registry, last);
      let done = 0;
      const isWhole = await new PublicLog(ctx, heads).check((leaves) => {
        done += leaves;
        progress('public log', done, last.size);
      });
      if (!isWhole) {
        findings.unchecked('published records: entries of the public log are lost or damaged');
        return;
      }
      const rebuilt = new RebuiltMap(ctx, last, registry?.ctx.origins.slice(1));
      if (await rebuilt.check(opened, (size) => progress('map', size, last.size))) map = rebuilt;
    },
    compareRecords: async (results: ChunkCheckResult): Promise<void> => {
      for (const result of results.values()) await map?.compare(result);
    },
    finish: async (registry: RegistryWalk | null): Promise<void> => {
      if (opened === null) return;
      progress('shares', 0, 1);
      const published = await readShares(ctx, opened);
      if (registry === null)
        findings.skip('comparison of share tokens and packages with the registry');
      else if (published !== null) await compareShares(ctx, registry.ctx, opened, published);
      progress('shares', 1, 1);
    },
  };
}

/** Compares the published size with the last signed checkpoint of the database. */
async function compareSize(
  { findings }: SnapshotContext,
  { ctx: { sql } }: RegistryWalk,
  head: SignedHead,
): Promise<void> {
  const latest = await latestCheckpointTime(sql);
  if (latest === null || latest.size <= head.size || latest.ageMs < PUBLISHED_WITHIN_MS) return;
  const signed = `the checkpoint of ${latest.size} leaves signed ${Math.floor(latest.ageMs / 1000)} s ago`;
  const found = `a checkpoint of ${head.size} leaves`;
  findings.add('snapshot_behind', head.where, `${signed}, found ${found}`);
}
