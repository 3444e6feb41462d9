import { setTimeout as sleep } from 'node:timers/promises';
import { TILE_WIDTH, rootFromTiles } from '#protocol/tiles';
import { Findings } from './findings.js';
import type { FsckOptions, FsckResult } from './state.js';
import { RegistryWalk, type WalkState } from './registry/walk.js';
import { equalBytes } from '#protocol/bytes';
import { nativeSha256 } from '#runtime/crypto/node';
import { missingCheckpoints, latestCheckpointTime } from '#sql/fsck/log';
import { countProofs, keyEntries } from '#sql/log/keys';
import { tileCache, endedOrigins } from '#sql/log/log';
import { checkAdmissions, checkBatches, checkOrphanRows } from './registry/admissions.js';
import { type RegistryContext, KeyHistory } from './registry/context.js';
import { checkShares, checkRevocations } from './registry/lifecycle.js';
import { checkHead, type Anchor } from './registry/log-tree.js';
import { GrowingTree } from './tree.js';
import { CHECKPOINT_PATH, LOCATION_PATH } from '#protocol/snapshot/location';
import type { ChunkCheckResult } from './registry/check-leaf.js';
import { readCheckpoint, readLocation, type SnapshotContext } from './snapshot/heads.js';
import { PublicLog, type SignedHead } from './snapshot/log.js';
import { RebuiltMap } from './snapshot/map.js';
import { compareShares, readShares } from './snapshot/shares.js';

const CHUNK = 4 * TILE_WIDTH;
const SAVE_EVERY_MS = 2_000;
/** The run was stopped; its state is kept. */
export class Stopped extends Error {}

/**
 * Checks the registry, the snapshot, or both and their agreement. The check rebuilds the public map from the public
 * log, and then walks the registry in log order, to compare each proof with its public record.
 *
 * @throws Stopped when the signal is aborted; the next run resumes at the saved position
 */
export async function fsck(given: FsckOptions): Promise<FsckResult> {
  const options = { ...given, progress: stoppable(given) };
  const { state } = options;
  const saved = state.content.run ?? { position: 0, walk: null, findings: undefined };
  const findings = new Findings(saved.findings);
  if (options.registry === null) findings.skip('the registry');
  if (options.snapshot === null) findings.skip('the snapshot');
  // Reads the snapshot first, so that the database cannot be behind it.
  const snapshot = options.snapshot && (await openSnapshot(options.snapshot, options, findings));
  const registry =
    options.registry &&
    (await openRegistry(options.registry, findings, snapshot?.anchors ?? [], saved.walk));
  await snapshot?.readLog(registry);
  const from = registry?.position ?? saved.position;
  if (from === 0 && saved.position > 0) {
    // The saved state belongs to another log with the same name.
    await state.save(null);
    return fsck(given);
  }
  if (registry !== null) {
    await walk(options, registry, snapshot);
    await finishRegistry(registry, options);
  }
  await snapshot?.finish(registry);
  await state.save(null).catch(({ message }: Error) => {
    // A full disk must not hide the findings.
    findings.unchecked(
      `the age of later snapshots, because the state was not saved (${message}): start the next run with --restart`,
    );
  });
  return {
    ...findings.state,
    isCorrupt: findings.isCorrupt,
    leaves: registry?.ctx.size ?? null,
    published: snapshot?.published ?? null,
    resumedFrom: from,
  };
}

async function walk(
  options: FsckOptions,
  registry: RegistryWalk,
  snapshot: Awaited<ReturnType<typeof openSnapshot>> | null,
): Promise<void> {
  const { chunkLeaves = CHUNK, saveEveryMs = SAVE_EVERY_MS } = options;
  const { size: end, findings } = registry.ctx;
  let saved = Date.now();
  while (registry.position < end) {
    const results = await registry.step(Math.min(registry.position + chunkLeaves, end));
    await snapshot?.compareRecords(results);
    const { position } = registry;
    options.progress('leaves', position, end);
    // Yields, so that signal handlers can run.
    await sleep(0);
    const isStopped = options.signal.aborted;
    // Saves only positions at the start of a tile, where a run must resume; the last tile may be partial.
    const isDue = isStopped || Date.now() - saved >= saveEveryMs || position === end;
    if (isDue && position % TILE_WIDTH === 0) {
      const run = { position, walk: registry.snapshot(), findings: findings.state };
      // Ignores a failure, unless the run stops: the next save may succeed, and the last one reports a failure.
      const saving = options.state.save(run);
      await (isStopped ? saving : saving.catch(() => undefined));
      saved = Date.now();
    }
    if (isStopped) throw new Stopped(`stopped at leaf ${position} of ${end}`);
  }
}

/** Stops every stage at its next progress report, except `leaves`: that stage saves its state first. */
function stoppable({ progress, signal }: FsckOptions): FsckOptions['progress'] {
  return (stage, done, total) => {
    progress(stage, done, total);
    if (signal.aborted && stage !== 'leaves') throw new Stopped(`stopped while reading: ${stage}`);
  };
}

/**
 * Begins the check of the database, or resumes `before` if the log still extends the tree of that state.
 *
 * @param anchors roots from the public snapshot
 */
async function openRegistry(
  registry: NonNullable<FsckOptions['registry']>,
  findings: Findings,
  anchors: readonly Anchor[],
  before: WalkState | null,
): Promise<RegistryWalk> {
  const size = await checkHead(registry.sql, findings.add);
  const { logVkeys, sql } = registry;
  const origins = [logVkeys[0].name, ...(await endedOrigins(sql))] as const;
  const keys = KeyHistory.read(await keyEntries(sql), size, origins);
  await countProofs(sql, keys.states, keys.keyIds);
  for (const anchor of anchors) {
    if (anchor.size <= size) continue;
    const expected = `at most ${size} leaves, the size of the log in the database, found ${anchor.size}`;
    findings.add('checkpoint_beyond_log', anchor.where, expected);
  }
  const covered = anchors.map((anchor) => anchor.size).filter((one) => one <= size);
  for (const missing of await missingCheckpoints(sql, origins[0], covered)) {
    findings.add('checkpoint_missing', `svc.checkpoint tree_size=${missing}`, 'a row of this size');
  }
  const ctx = { ...registry, findings, keys, origins, size };
  const isSame = before !== null && (await hasTree(ctx, before));
  return new RegistryWalk(ctx, anchors, isSame ? before : undefined);
}

async function hasTree(
  { sql, size }: RegistryContext,
  { log: { tree: state, isBroken } }: WalkState,
): Promise<boolean> {
  if (state.size === 0 || state.size > size) return false;
  if (isBroken) return true;
  try {
    const root = await rootFromTiles(nativeSha256, state.size, tileCache(sql));
    return equalBytes(root, new GrowingTree(state).root());
  } catch {
    return false; // A tile is missing: the walk reports it.
  }
}

/** Findings that show that the log has lost leaves at its end. */
const CUT = ['checkpoint_beyond_log', 'verdict_beyond_log', 'tile_beyond_head'] as const;

/**
 * Checks the tables that the walk of the log does not read in log order: admissions, shares, batches, decision inputs.
 */
async function finishRegistry(
  walk: RegistryWalk,
  { waitMs, progress }: Pick<FsckOptions, 'progress' | 'waitMs'>,
): Promise<void> {
  const { ctx } = walk;
  await walk.finish();
  let done = 0;
  const { counts } = ctx.findings.state;
  const isCut = CUT.some((code) => (counts[code] ?? 0) > 0);
  await checkAdmissions(ctx, isCut || walk.state.hasDamagedLeaf, waitMs, (rows) => {
    done += rows;
    progress('admissions', done, Math.max(done, ctx.size));
  });
  await checkRevocations(ctx);
  await checkShares(ctx);
  await checkBatches(ctx);
  await checkOrphanRows(ctx);
}

/** A running publisher publishes a checkpoint within seconds. */
const PUBLISHED_WITHIN_MS = 60_000;

/** Begins the check of the public snapshot: of the log, and of the map rebuilt from the log. */
async function openSnapshot(
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
