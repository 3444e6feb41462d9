import { equalBytes, fromBase64, toBase64 } from '#protocol/bytes';
import { entryBytes, parseEntry } from '#protocol/entries';
import { SCHEMA } from '#protocol/schemas/ids';
import { MAX_SNAPSHOT_MS, type SnapshotEntry } from '#protocol/schemas/log-entry';
import { noteIn } from '#protocol/snapshot/location';
import { TILE_WIDTH } from '#protocol/tiles';
import { formatTime, parseTime } from '#protocol/time';
import { keysAfter } from '#sql/lifecycle/log-keys';
import { commitCheckpoint, commitLocation } from './commit.js';
import type { CycleContext, PublicState } from './context.js';
import { FatalPublishError, LeaseLostError, LostPageError } from './errors.js';
import {
  loadPublishInputs,
  type PublishInputs,
  requireInPrimary,
  requireSigningKey,
  storedCheckpoint,
} from './plan/inputs.js';
import { leafFiles, logFiles } from './plan/log-files.js';
import { advance, EMPTY_STATE, snapshotAt, startingState } from './plan/public-state.js';
import { applyShares } from './plan/shares.js';
import {
  requireClaimed,
  requireSameMap,
  requireStoredShares,
  storeNextShares,
  unsignedSnapshots,
} from './plan/snapshot-entries.js';
import { mismatch, VerifiedTree } from './plan/tree.js';
import { replicaBehind, splitRegistry } from './registry/sql-registry.js';
import type { Published } from './store/reader.js';
import { rootOf } from './store/maps.js';

export type CycleReport =
  /** Another publisher holds the lease. */
  | { outcome: 'standby' }
  /**
   * The log has no verdict entry yet, or only entries of the retired log that this log continues.
   */
  | { outcome: 'waiting' }
  /**
   * The `expired_through` of the last verdict entry is older than `SNAPSHOT_TTL`: nothing is signed
   * until the verifier appends another entry. The time is in RFC 3339.
   */
  | { outcome: 'verifier_silent'; expired_through: string }
  /** The published snapshot already reports everything in the log. */
  | { outcome: 'unchanged'; generation: number }
  | {
      outcome: 'published';
      generation: number;
      /** The leaves that the snapshot covers. */
      treeSize: number;
      newLeaves: number;
      changedRecords: number;
      shareChanges: number;
    };

/**
 * Publishes one snapshot. Because of the order of its steps, a crash after any step needs no
 * recovery: the next cycle starts from the published state.
 */
export async function runPublishCycle(ctx: CycleContext): Promise<CycleReport> {
  ctx.memory.published = null;
  if (!ctx.leadership.isLeading) await requireUsableKeys(ctx);
  if (!(await ctx.leadership.take())) return { outcome: 'standby' };
  try {
    return await lead(ctx);
  } catch (error) {
    if (error instanceof LeaseLostError) await ctx.leadership.release();
    throw error;
  }
}

async function lead(ctx: CycleContext): Promise<CycleReport> {
  await ctx.writer.prepare();

  const published = await ctx.reader.snapshot();
  if (published !== null) ctx.onPublished?.(published);
  const { replica } = ctx;
  if (replica === null) return publish(ctx, published);
  try {
    return await replica.reading((copy) =>
      publish({ ...ctx, registry: splitRegistry(ctx.primary, copy) }, published),
    );
  } catch (error) {
    if (!(error instanceof FatalPublishError)) throw error;
    // Only the primary shows whether the registry was rolled back or contradicts itself.
    if (error.code === 'database_behind' || error.code === 'changes_behind') {
      await loadPublishInputs(ctx, published);
      throw replicaBehind();
    }
    if (error.code !== 'tree_mismatch' && error.code !== 'log_forked') throw error;
    ctx.logger.error(
      { err: error },
      'publish cycle: the replica contradicts itself; this cycle reads the primary',
    );
    return publish(ctx, published);
  }
}

/** Lets a standby report a missing or inactive key before a failover, while another publisher leads. */
async function requireUsableKeys(ctx: CycleContext): Promise<void> {
  const stored = await storedCheckpoint(ctx);
  await ctx.reader.checkpoint();
  await ctx.reader.snapshot();
  const { name, keyHash } = ctx.logSigner;
  if (stored === null || equalBytes(stored.signedBy.keyHash, keyHash)) return;
  requireSigningKey(ctx, keysAfter(name, await ctx.registry.keyEntries()), stored);
}

async function publish(ctx: CycleContext, published: Published | null): Promise<CycleReport> {
  try {
    return await publishNext(ctx, published);
  } catch (error) {
    ctx.janitor.scanAgain();
    if (!(error instanceof LostPageError)) throw error;
    const message =
      'publish cycle: pages of the published maps are lost; this cycle computes the maps from the whole log';
    ctx.logger.error({ err: error }, message);
    // The scan for lost pages comes after the write of the location.
    return await publishNext(ctx, await ctx.reader.snapshot(), true);
  }
}

/**
 * @param rebuilds whether to start from an empty map, because pages of the published map are lost
 */
async function publishNext(
  ctx: CycleContext,
  published: Published | null,
  rebuilds = false,
): Promise<CycleReport> {
  ctx.maps.reset();
  const startedAt = ctx.clock.now();
  const inputs = await loadPublishInputs(ctx, published);
  if (inputs === null) return { outcome: 'waiting' };
  if (ctx.primary !== ctx.registry) await requireInPrimary(ctx.primary, inputs);
  const { tree, verdict, signedSize } = inputs;
  const expiredThrough = parseTime(verdict.entry.expired_through);
  const validUntil = Math.min(startedAt, expiredThrough) + ctx.snapshotTtlMs;
  if (validUntil <= startedAt) {
    return { outcome: 'verifier_silent', expired_through: verdict.entry.expired_through };
  }

  const publishedSize = published?.snapshot.logs[0]!.size ?? 0;
  const claims = await unsignedSnapshots(ctx, tree, signedSize, publishedSize);
  const sizes = [publishedSize, ...claims.map(({ size }) => size)];
  const stops = new Set([...sizes, Math.max(verdict.index + 1, ...sizes)]);
  const before = rebuilds
    ? EMPTY_STATE
    : await startingState(ctx, tree, published, Math.min(...claims.map(({ size }) => size)));
  const known =
    published === null || !rebuilds
      ? claims
      : [...claims, { index: published.index, entry: published.snapshot, size: publishedSize }];

  const inspect = requireClaimed(ctx, claims, signedSize);
  // No location refers to these files yet. After a crash the next cycle reuses them, or the janitor
  // removes them.
  const signedBefore = published?.checkpoint.size ?? 0;
  // The tree to sign has more leaves than `tree`, so only full tiles of `tree` have their final
  // content.
  const fullSize = tree.head.size - (tree.head.size % TILE_WIDTH);
  const advanced = await advance(
    ctx,
    tree,
    before,
    [...stops].sort((a, b) => a - b),
    {
      entries: async (first, entries) => {
        inspect(first, entries);
        await ctx.writer.put(await leafFiles(tree, { first, entries }, signedBefore, fullSize));
      },
      stop: (state) => requireSameMap(known, state),
    },
  );
  const counted = advanced.state.log.verdict;
  if (counted?.index !== verdict.index) {
    if (counted === null && (await ctx.registry.endedOrigins()).length > 0)
      return { outcome: 'waiting' };
    throw mismatch(`the verdict entry at leaf ${verdict.index} does not count`);
  }
  requireSigningKey(ctx, advanced.state.log.keys, inputs.stored);
  const sharesBefore = published?.location.share_change ?? 0;
  const state = await applyShares(ctx, advanced.state, sharesBefore);
  await requireStoredShares(ctx, claims, state, published);
  await ctx.maps.flush();
  ctx.memory.progress = { from: published?.index ?? null, state };
  const isPublished = published !== null && isCurrent(ctx, published, state, validUntil);
  const generation = isPublished
    ? published.index
    : await publishState(ctx, published, inputs, state, validUntil, inspect);
  ctx.memory.progress = { from: generation, state };
  await sweep(ctx, state);
  const { shareChange } = state;
  ctx.memory.published = { verdict: verdict.index, snapshot: generation, shareChange };
  if (isPublished) {
    // Sends the checkpoint again to witnesses that did not answer, and renews cosignatures.
    ctx.cosigner?.submit(noteIn(published.bytes), published.checkpoint.size);
    return { outcome: 'unchanged', generation };
  }
  return {
    outcome: 'published',
    generation,
    treeSize: state.log.size,
    newLeaves: state.log.size - publishedSize,
    changedRecords: advanced.changes,
    shareChanges: shareChange - sharesBefore,
  };
}

/**
 * Whether the published snapshot reports this state, and is valid about as long as a new snapshot
 * would be.
 */
function isCurrent(
  ctx: CycleContext,
  published: Published,
  { log, shares }: PublicState,
  validUntil: number,
): boolean {
  const { snapshot, signedBy } = published;
  const gained = validUntil - published.validUntil;
  const isLongEnough =
    gained <= 0 || (gained < ctx.snapshotTtlMs / 2 && published.validUntil > ctx.clock.now());
  return (
    isLongEnough &&
    log.size === snapshot.logs[0]!.size &&
    equalBytes(rootOf(shares), fromBase64(snapshot.shares_root)) &&
    equalBytes(signedBy.keyHash, ctx.logSigner.keyHash)
  );
}

/**
 * Appends a snapshot entry about the state, signs a tree that contains the entry, and publishes the
 * checkpoint and the snapshot.
 */
async function publishState(
  ctx: CycleContext,
  published: Published | null,
  inputs: PublishInputs,
  state: PublicState,
  validUntil: number,
  inspect: (first: number, entries: readonly Uint8Array[]) => void,
): Promise<number> {
  const { tree, signedSize } = inputs;
  const entry = await snapshotEntry(ctx, tree, state, validUntil);
  await storeNextShares(ctx, state.shares, signedSize);
  await ctx.leadership.require();
  const appended = reusable(ctx, entry, signedSize) ?? (await append(ctx, entry));
  const signed = await treeToSign(ctx, tree, appended.index, state.log.size);
  const signedBefore = published?.checkpoint.size ?? 0;
  const { size } = state.log;
  for await (const files of logFiles(signed, signedBefore, size, ctx.chunkLeaves, inspect)) {
    await ctx.writer.put(files);
    ctx.progress();
  }

  // COMMIT POINT of the checkpoint, in the database.
  const note = await commitCheckpoint(ctx, signed.head, inputs);
  // COMMIT POINT of the snapshot.
  await commitLocation(ctx, signed, appended, note, state, published);
  ctx.cosigner?.submit(note, signed.head.size);
  // A tree that extends this snapshot extends the trusted checkpoint too.
  ctx.memory.head = null;
  ctx.memory.appended.clear();
  ctx.janitor.supersede(ctx.maps.takeSuperseded(), ctx.clock.now());
  return appended.index;
}

async function snapshotEntry(
  ctx: CycleContext,
  tree: VerifiedTree,
  { log, map, shares }: PublicState,
  validUntil: number,
): Promise<SnapshotEntry> {
  const { size } = log;
  const [time, latest] = await Promise.all([
    ctx.registry.databaseTime(),
    ctx.registry.latestEntry('snapshot', tree.head.size),
  ]);
  if (validUntil <= time) {
    throw new Error(
      'the cycle took longer than the snapshot would be valid; the next cycle continues from its result',
    );
  }
  const before = latest && (await snapshotAt(tree, latest.leafIndex));
  const lookupFrom = Math.max(
    size - ctx.recentLookupLimit,
    // An entry that lowers `lookup_from` would not count.
    before?.lookupFrom ?? 0,
    log.snapshot?.lookupFrom ?? 0,
  );
  return {
    schema_version: SCHEMA.logEntry,
    type: 'snapshot',
    time: formatTime(time),
    logs: [
      {
        shard: 0,
        origin: ctx.logSigner.name,
        size,
        root: toBase64(await tree.rootAt(size)),
        expired_through: log.verdict!.expiredThrough,
        lookup_from: Math.min(lookupFrom, size),
      },
    ],
    map_root: toBase64(rootOf(map)),
    shares_root: toBase64(rootOf(shares)),
    valid_until: formatTime(Math.min(validUntil, time + MAX_SNAPSHOT_MS)),
    max_merge_delay: ctx.maxMergeDelay,
  };
}

/**
 * The last snapshot entry of this process that no checkpoint covers yet, if it equals `entry`
 * except for its times.
 */
function reusable(
  ctx: CycleContext,
  entry: SnapshotEntry,
  signedSize: number,
): { index: number; entry: SnapshotEntry } | null {
  const last = [...ctx.memory.appended].at(-1);
  if (last === undefined || last[0] < signedSize - 1) return null;
  const appended = parseEntry(last[1]) as SnapshotEntry;
  const { time, valid_until } = appended;
  const isSame = equalBytes(entryBytes({ ...entry, time, valid_until }), last[1]);
  return isSame && parseTime(valid_until) > ctx.clock.now()
    ? { index: last[0], entry: appended }
    : null;
}

async function append(ctx: CycleContext, entry: SnapshotEntry) {
  const index = await ctx.registry.appendSnapshot(entry);
  ctx.memory.appended.set(index, entryBytes(entry));
  return { index, entry };
}

/**
 * The tree whose last leaf, at `index`, is the snapshot entry that this process appended about
 * `covered` leaves.
 */
async function treeToSign(
  ctx: CycleContext,
  tree: VerifiedTree,
  index: number,
  covered: number,
): Promise<VerifiedTree> {
  const signed = await VerifiedTree.open(index + 1, ctx.primary, tree);
  ctx.memory.tree = signed;
  const isExtension =
    signed.head.size < tree.head.size
      ? await tree.extends(signed.head)
      : await signed.extends(tree.head);
  // Reads the appended entry together with the entries before it, which are needed for the files of
  // the log.
  const entries = await signed.entries(Math.max(covered, index - ctx.chunkLeaves), index + 1);
  if (!isExtension || !equalBytes(entries.at(-1)!, ctx.memory.appended.get(index)!)) {
    throw mismatch(`its first ${index + 1} leaves changed`);
  }
  for (const { leafIndex } of await ctx.primary.snapshotEntriesFrom(tree.head.size)) {
    if (ctx.memory.appended.has(leafIndex)) continue;
    throw new LeaseLostError('another publisher appended a snapshot entry');
  }
  return signed;
}

async function sweep(ctx: CycleContext, { map, shares }: PublicState): Promise<void> {
  const live = async function* () {
    yield* ctx.maps.names(map);
    yield* ctx.maps.names(shares);
  };
  await ctx.janitor.sweep(live, ctx.clock.now());
}
