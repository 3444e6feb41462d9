import { equalBytes, fromBase64 } from '#protocol/bytes';
import { noteIn } from '#protocol/snapshot/location';
import { TILE_WIDTH } from '#protocol/tiles';
import { parseTime } from '#protocol/time';
import { keysAfter } from '#sql/lifecycle/log-keys';
import { type NewSnapshot, publishSnapshot } from './commit.js';
import type { CycleContext, PublicState } from './context.js';
import { FatalPublishError, LeaseLostError, LostPageError, mismatch } from './errors.js';
import {
  loadPublishInputs,
  type PublishInputs,
  requireInPrimary,
  requireSigningKey,
  type VerifiedCheckpoint,
  storedCheckpoint,
  requireClaimed,
  requireSameMap,
  requireStoredShares,
  unsignedSnapshots,
} from './plan/inputs.js';
import { advance, EMPTY_STATE, startingState } from './plan/public-state.js';
import { applyShares } from './plan/shares.js';
import { leafFiles } from './plan/tree.js';
import { replicaBehind, splitRegistry } from './registry/sql-registry.js';
import type { Published } from './store/published-files.js';
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
  /** The published snapshot already reports everything that the last verdict entry covers. */
  | { outcome: 'unchanged'; generation: number }
  | {
      outcome: 'published';
      generation: number;
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
  const wasLeading = ctx.leadership.isLeading;
  const stored = wasLeading ? null : await requireKnownSigners(ctx);
  if (!(await ctx.leadership.take())) {
    await requireUsableKey(ctx, stored);
    return { outcome: 'standby' };
  }
  // Another publisher may have written files, and may use pages again that this publisher superseded.
  if (!wasLeading) ctx.janitor.scanAgain();
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
    return await replica((copy) =>
      publish({ ...ctx, registry: splitRegistry(ctx.primary, copy) }, published),
    );
  } catch (error) {
    if (!(error instanceof FatalPublishError)) throw error;
    // Only the primary shows whether the registry was rolled back or contradicts itself.
    if (error.code === 'database_behind') {
      await loadPublishInputs(ctx, published);
      throw replicaBehind();
    }
    if (!['log_forked', 'tree_mismatch'].includes(error.code)) throw error;
    ctx.log.error(
      { err: error },
      'publish cycle: the replica is unusable; this cycle reads the primary',
    );
    return publish(ctx, published);
  }
}

/** Lets a standby report a missing key before a failover. Returns the last checkpoint. */
async function requireKnownSigners(ctx: CycleContext): Promise<VerifiedCheckpoint | null> {
  const stored = await storedCheckpoint(ctx);
  await ctx.reader.checkpoint();
  await ctx.reader.snapshot();
  return stored;
}

/**
 * Lets a standby report an inactive key before a failover. Not for a leader, which must first check whether
 * the database lost leaves: the activation of the key may be among the lost leaves.
 */
async function requireUsableKey(
  ctx: CycleContext,
  stored: VerifiedCheckpoint | null,
): Promise<void> {
  const { name, keyHash } = ctx.logSigner;
  if (stored === null || equalBytes(stored.signedBy.keyHash, keyHash)) return;
  requireSigningKey(ctx, keysAfter(name, await ctx.registry.undelegatedKeyEntries()), stored);
}

async function publish(ctx: CycleContext, published: Published | null): Promise<CycleReport> {
  try {
    return await publishNext(ctx, published);
  } catch (error) {
    ctx.janitor.scanAgain();
    if (!(error instanceof LostPageError)) throw error;
    const message =
      'publish cycle: pages of the published maps are lost; this cycle computes the maps from the whole log';
    ctx.log.error({ err: error }, message);
    // Reads the location again, because the cycle may have replaced the location before it found the loss.
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
  const { expired_through } = inputs.verdict.entry;
  const validUntil = Math.min(startedAt, parseTime(expired_through)) + ctx.snapshotTtlMs;
  if (validUntil <= startedAt) return { outcome: 'verifier_silent', expired_through };

  const next = await nextState(ctx, published, inputs, rebuilds);
  if (next === null) return { outcome: 'waiting' };
  const { state, changedRecords, before } = next;
  const { size } = state.log;
  const head = { size, root: await inputs.tree.rootAt(size) };
  // A failover can lose unpublished changes of share tokens and keep every leaf, so the next cycle reads them again.
  const isKept = rebuilds || state.shareChange === published?.location.share_change;
  const { shares, shareChange, waiting } = isKept ? state : before;
  const kept = { ...state, shares, shareChange, waiting };
  ctx.memory.progress = { from: published?.index ?? null, state: kept, head };
  const isPublished = published !== null && isCurrent(ctx, published, state, validUntil);
  const generation = isPublished
    ? published.index
    : await publishSnapshot(ctx, published, inputs, { ...next, validUntil });
  if (!isPublished) ctx.memory.progress = { from: generation, state, head };
  await sweep(ctx, state, generation);
  ctx.memory.published = {
    verdict: inputs.verdict.index,
    snapshot: generation,
    shareChange: state.shareChange,
  };
  if (isPublished) {
    // Sends the checkpoint again to witnesses that did not answer, and renews cosignatures.
    ctx.cosigner?.submit(noteIn(published.bytes), published.checkpoint.size);
    return { outcome: 'unchanged', generation };
  }
  return {
    outcome: 'published',
    generation,
    treeSize: state.log.size,
    newLeaves: state.log.size - sizeOf(published),
    changedRecords,
    shareChanges: state.shareChange - (published?.location.share_change ?? 0),
  };
}

const sizeOf = (published: Published | null): number => published?.snapshot.logs[0]!.size ?? 0;

/**
 * The state to publish, with its map pages and the files of its leaves stored. Null when this log has
 * no valid verdict entry yet.
 */
async function nextState(
  ctx: CycleContext,
  published: Published | null,
  { tree, verdict, signedSize, stored }: PublishInputs,
  rebuilds: boolean,
): Promise<
  (Pick<NewSnapshot, 'state' | 'inspect'> & { changedRecords: number; before: PublicState }) | null
> {
  const publishedSize = sizeOf(published);
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
  const written = { from: published?.checkpoint.size ?? 0, signedSize };
  // The tree to sign has more leaves than `tree`, so the partial tiles of `tree` are not final.
  const fullSize = tree.head.size - (tree.head.size % TILE_WIDTH);
  const ascending = [...stops].sort((a, b) => a - b);
  const advanced = await advance(ctx, tree, before, ascending, {
    entries: async (first, entries) => {
      inspect(first, entries);
      const files = await leafFiles(tree, { first, entries }, written, fullSize);
      await ctx.writer.put(files);
      ctx.janitor.wrote(files);
    },
    stop: (state) => requireSameMap(known, state),
  });
  const counted = advanced.state.log.verdict;
  if (counted?.index !== verdict.index) {
    const { to: size, root } = verdict.entry;
    if (!(await tree.extends({ size, root: fromBase64(root) }))) {
      throw mismatch(
        `the tree does not have the root in the verdict entry at leaf ${verdict.index}`,
      );
    }
    if (counted === null && (await ctx.registry.endedOrigins()).length > 0) return null;
    throw mismatch(`the verdict entry at leaf ${verdict.index} does not count`);
  }
  requireSigningKey(ctx, advanced.state.log.keys, stored);
  const sharesBefore = published?.location.share_change ?? 0;
  const state = await applyShares(ctx, advanced.state, sharesBefore, rebuilds);
  await requireStoredShares(ctx, claims, state, published);
  await ctx.maps.flush();
  return { state, inspect, changedRecords: advanced.changes, before };
}

/** At most one renewal a second, however short the validity of the snapshots of a publisher whose clock is behind. */
const MIN_RENEWAL_MS = 1_000;

/**
 * Whether the published snapshot reports this state, and expires about when a new snapshot would.
 */
function isCurrent(
  ctx: CycleContext,
  published: Published,
  { log, shares }: PublicState,
  validUntil: number,
): boolean {
  const { snapshot, signedBy } = published;
  const gained = validUntil - published.validUntil;
  // A publisher whose clock is behind makes snapshots of a shorter validity.
  const validity = Math.min(ctx.snapshotTtlMs, published.validUntil - parseTime(snapshot.time));
  const renewedFrom = Math.max(validity / 2, Math.min(ctx.snapshotTtlMs / 2, MIN_RENEWAL_MS));
  const isLongEnough =
    gained <= 0 || (gained < renewedFrom && published.validUntil > ctx.clock.now());
  return (
    isLongEnough &&
    log.size === snapshot.logs[0]!.size &&
    equalBytes(rootOf(shares), fromBase64(snapshot.shares_root)) &&
    equalBytes(signedBy.keyHash, ctx.logSigner.keyHash)
  );
}

async function sweep(
  ctx: CycleContext,
  { map, shares }: PublicState,
  generation: number,
): Promise<void> {
  const live = async function* () {
    yield* ctx.maps.names(map);
    yield* ctx.maps.names(shares);
  };
  // A snapshot of another publisher may use pages again that this publisher superseded.
  const requireCurrent = async (): Promise<void> => {
    await ctx.leadership.require();
    if ((await ctx.reader.snapshot())?.index !== generation)
      throw new LeaseLostError('another publisher replaced the snapshot');
  };
  try {
    // The checkpoint of a snapshot covers the snapshot's entry.
    await ctx.janitor.sweep(live, generation + 1, ctx.monotonic.now(), requireCurrent);
  } catch (error) {
    if (error instanceof LostPageError || error instanceof LeaseLostError) throw error;
    // This cycle has published already, so it did not fail.
    const message =
      'publish cycle: replaced files could not be listed or deleted; others follow in five minutes, these in an hour';
    ctx.log.error({ err: error }, message);
  }
}
