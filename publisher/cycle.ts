import { toBase64, utf8 } from '#protocol/bytes';
import {
  CHECKPOINT_PATH,
  PACKAGE_PARTS,
  SHARE_PARTS,
  SNAPSHOT_SCHEMA,
  type Manifest,
} from '#protocol/snapshot/manifest';
import { formatTime } from '#protocol/time';
import { commitCheckpoint, commitManifest, nextGeneration, validity } from './commit.js';
import type { CycleContext } from './context.js';
import type { Published } from './store/directory.js';
import {
  changedShares,
  SHARES_PER_CYCLE,
  changedPackages,
  PublishedMembers,
} from './plan/shares.js';
import { loadPublishInputs, requireInPrimary, storedCheckpoint } from './plan/inputs.js';
import { IndexBuilder } from './store/index-builder.js';
import { changedRecords, newLeaves } from './plan/records.js';
import { type RegistryView, replicaBehind, splitRegistry } from './registry/sql-registry.js';
import { FatalPublishError, LeaseLostError } from './errors.js';
import { withdrawFailed } from './plan/withdraw.js';

export type CycleReport =
  /** Another publisher holds the lease. */
  | { outcome: 'standby' }
  /** The log has no verified prefix yet. */
  | { outcome: 'waiting' }
  /**
   * The last expiry scan is older than `SNAPSHOT_TTL`, or never ran: nothing is signed until the
   * verifier completes one. `looked_at`: RFC 3339.
   */
  | { outcome: 'verifier_silent'; looked_at: string | null }
  | {
      outcome: 'published';
      generation: number;
      treeSize: number;
      newProofs: number;
      changedRecords: number;
      /** Published changes of share tokens and packages. */
      shareChanges: number;
    };

/**
 * Publishes one snapshot. The order of the steps makes a crash safe after any of them. No recovery
 * is needed: the next cycle starts from the published state.
 */
export async function runPublishCycle(ctx: CycleContext): Promise<CycleReport> {
  if (!ctx.leadership.isLeading) await requireKnownSigners(ctx);
  if (!(await ctx.leadership.take())) return { outcome: 'standby' };
  await ctx.writer.prepare();

  const published = await ctx.directory.manifest();
  const { replica } = ctx;
  if (replica === null) return withWithdrawal(ctx, published, () => publishNext(ctx, published));
  try {
    return await replica.reading((copy) => publishNext(ctx, published, copy));
  } catch (error) {
    if (!(error instanceof FatalPublishError)) throw error;
    // Only the primary shows whether the registry was rolled back or contradicts itself.
    if (error.code === 'database_behind' || error.code === 'changes_behind') {
      await withWithdrawal(ctx, published, () => loadPublishInputs(ctx, published));
      throw replicaBehind();
    }
    if (error.code !== 'tree_mismatch' && error.code !== 'log_forked') throw error;
    ctx.log.error(
      { err: error },
      'publish cycle: the replica contradicts itself; this cycle reads the primary',
    );
    return withWithdrawal(ctx, published, () => publishNext(ctx, published));
  }
}

/** Lets a standby report a missing key before a failover, while another publisher leads. */
async function requireKnownSigners(ctx: CycleContext): Promise<void> {
  await storedCheckpoint(ctx);
  await ctx.directory.checkpoint();
  await ctx.directory.manifest();
}

/** Runs `work`. If the registry contradicts itself, withdraws failed proofs before stopping. */
async function withWithdrawal<T>(
  ctx: CycleContext,
  published: Published | null,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const mismatch = error instanceof FatalPublishError && error.code === 'tree_mismatch';
    if (!mismatch || published === null) throw error;
    try {
      await withdrawFailed(ctx, published);
    } catch (cause) {
      if (cause instanceof FatalPublishError || cause instanceof LeaseLostError) throw cause;
      // Not fatal: the next cycle tries to withdraw them again.
      throw new Error(`Failed proofs could not be withdrawn. ${error.message}`, { cause });
    }
    throw error;
  }
}

/** @param copy a snapshot of the replica, for all reads that the primary need not serve */
async function publishNext(
  base: CycleContext,
  published: Published | null,
  copy: RegistryView | null = null,
): Promise<CycleReport> {
  const primary = base.registry;
  const ctx = copy === null ? base : { ...base, registry: splitRegistry(primary, copy) };
  const manifestBefore = published?.opened.manifest;
  const before = {
    size: manifestBefore?.tree_size ?? 0,
    proofs: manifestBefore?.proofs ?? 0,
    pins: manifestBefore?.index_parts ?? [],
  };
  const startedAt = ctx.clock.now();
  // Read first, so that later reads include everything expired by this time. A lagging replica
  // returns an earlier time, which shortens the signed validity.
  const verifierCheckedAt = await ctx.registry.expiryScanDoneAt();
  const inputs = await loadPublishInputs(ctx, published);
  if (inputs === null) return { outcome: 'waiting' };
  if (copy !== null) await requireInPrimary(ctx, primary, inputs);
  const { head, tree, stored, keys, changes, shareChanges } = inputs;
  const maxValidUntil = Math.min(startedAt, verifierCheckedAt ?? -Infinity) + ctx.snapshotTtlMs;
  if (maxValidUntil <= startedAt) {
    return {
      outcome: 'verifier_silent',
      looked_at: verifierCheckedAt === null ? null : formatTime(verifierCheckedAt),
    };
  }

  // COMMIT POINT of the checkpoint, in the database.
  const note = await commitCheckpoint(ctx, head, stored);

  // No manifest refers to these files yet. After a crash the next cycle reuses them, or the janitor
  // removes them.
  const index = new IndexBuilder(ctx, before.pins);
  let newProofs = 0;
  if (tree !== null) {
    for await (const run of newLeaves(ctx, tree, before.size, before.proofs, keys)) {
      await ctx.writer.put(run.files);
      newProofs += run.proofs;
      if (run.rows !== null) await index.add(run.rows);
    }
  }
  const changedIds: string[] = [];
  for await (const records of changedRecords(ctx, before, head.size, changes.leaves)) {
    await index.addRecords(records);
    changedIds.push(...records.map(({ id }) => id));
  }
  // Packages repeat the records of their members, so the records come first.
  const members = new PublishedMembers(ctx, await index.finish());
  for await (const records of changedPackages(ctx, members, changedIds)) {
    await index.addRecords(records, PACKAGE_PARTS);
  }
  let publishedChanges = 0;
  let isBlocked = false;
  for await (const page of changedShares(ctx, members, shareChanges)) {
    await index.addRecords(page.packages, PACKAGE_PARTS);
    await index.addRecords(page.shares, SHARE_PARTS);
    publishedChanges += page.taken;
    isBlocked = page.waits;
  }
  await ctx.writer.put([keys.file]);
  const pins = await index.finish();

  // Written only now that the tiles and entries under the checkpoint are durable.
  if (inputs.publishedNote !== note) {
    await ctx.writer.put([{ path: CHECKPOINT_PATH, bytes: utf8(note), replaces: true }]);
  }

  // COMMIT POINT of the snapshot: the manifest is written last, and replaces only the one that this
  // cycle started from. Unchanged content needs a new manifest too, because its validity is short.
  const now = ctx.clock.now();
  const isCut =
    changes.isCut ||
    shareChanges.length === SHARES_PER_CYCLE ||
    (publishedChanges < shareChanges.length && !isBlocked);
  const manifest: Manifest = {
    schema_version: SNAPSHOT_SCHEMA,
    generation: nextGeneration(published, now),
    ...validity(isCut ? published : null, maxValidUntil, startedAt, now),
    tree_size: head.size,
    root: toBase64(head.root),
    checkpoint: note,
    proofs: before.proofs + newProofs,
    window: ctx.recentLookupLimit,
    verdict_cursor: changes.cursor,
    keys: keys.pin,
    index_parts: pins,
  };
  await commitManifest(ctx, manifest, published);
  ctx.cosigner?.submit(note, head.size);
  // A tree that extends this snapshot extends the trusted checkpoint too.
  ctx.memory.head = null;
  ctx.memory.seen = { generation: manifest.generation, verdictId: changes.seen };

  await ctx.janitor.sweep(manifest, now);
  return {
    outcome: 'published',
    generation: manifest.generation,
    treeSize: head.size,
    newProofs,
    changedRecords: changedIds.length,
    shareChanges: publishedChanges,
  };
}
