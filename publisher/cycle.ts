import { equalBytes, toBase64, utf8 } from '#protocol/bytes';
import { formatCheckpoint } from '#protocol/checkpoint';
import { signNote } from '#protocol/note';
import {
  CHECKPOINT_PATH,
  PACKAGE_PARTS,
  SHARE_PARTS,
  SNAPSHOT_SCHEMA,
  type Manifest,
} from '#protocol/snapshot/manifest';
import { formatTime } from '#protocol/time';
import type { CycleContext } from './context.js';
import type { Published } from './store/directory.js';
import { changedGrants, SHARES_PER_CYCLE } from './plan/shares.js';
import { loadPublishInputs, requireInPrimary, storedCheckpoint, type StoredCheckpoint, validity } from './plan/inputs.js';
import { IndexBuilder } from './store/index-builder.js';
import { changedRecords } from './plan/changed-records.js';
import { newLeaves } from './plan/new-leaves.js';
import { changedPackages, PublishedMembers } from './plan/packages.js';
import { nextGeneration, putManifest } from './store/put-manifest.js';
import type { RegistryView } from './registry/registry-view.js';
import { replicaBehind, splitRegistry } from './registry/replica.js';
import { LeaseLostError, FatalPublishError } from './errors.js';
import type { TreeHead } from './plan/tree.js';
import { withdrawFailed } from './plan/withdraw.js';

export type CycleReport =
  /** Another publisher leads. */
  | { outcome: 'standby' }
  /** Nothing is verified yet, so there is nothing to speak of. */
  | { outcome: 'waiting' }
  /**
   * The verifier has not looked for what is over for as long as a snapshot is valid, or never:
   * nothing is signed until it does. `looked_at`: RFC 3339.
   */
  | { outcome: 'verifier_silent'; looked_at: string | null }
  | {
      outcome: 'published';
      generation: number;
      treeSize: number;
      newProofs: number;
      changedRecords: number;
      /** Changes of share tokens and packages that were taken up. */
      grants: number;
    };

/**
 * One publication, from the registry to the public. The order of its steps is what makes it safe
 * to die after any of them; there is no recovery but the next tick, which starts from what is
 * published and does the same again.
 */
export async function runPublishCycle(ctx: CycleContext): Promise<CycleReport> {
  if (!ctx.leadership.isLeading) await requireKnownSigners(ctx);
  if (!(await ctx.leadership.take())) return { outcome: 'standby' };
  await ctx.writer.prepare();

  const published = await ctx.directory.manifest();
  const { replica } = ctx;
  if (replica === null) return withdrawing(ctx, published, () => publishNext(ctx, published));
  try {
    return await replica.reading((copy) => publishNext(ctx, published, copy));
  } catch (error) {
    if (!(error instanceof FatalPublishError)) throw error;
    // Whether the registry itself went back in time or contradicts itself, it alone says.
    if (error.code === 'database_behind' || error.code === 'changes_behind') {
      await withdrawing(ctx, published, () => loadPublishInputs(ctx, published));
      throw replicaBehind();
    }
    if (error.code !== 'tree_mismatch' && error.code !== 'log_forked') throw error;
    ctx.log.error({ err: error }, 'the replica contradicts itself: this tick reads the primary');
    return withdrawing(ctx, published, () => publishNext(ctx, published));
  }
}

/** A standby that lacks a key reports so while another publisher leads, not when that one is gone. */
async function requireKnownSigners(ctx: CycleContext): Promise<void> {
  await storedCheckpoint(ctx);
  await ctx.directory.checkpoint();
  await ctx.directory.manifest();
}

/** A registry that contradicts itself stops the publisher, once what failed asserts nothing any more. */
async function withdrawing<T>(
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
      // Not stopped yet: the next tick comes here again.
      throw new Error(`Failed proofs could not be withdrawn. ${error.message}`, { cause });
    }
    throw error;
  }
}

/** @param copy a replica's snapshot of the registry, to read all that need not be the primary's */
async function publishNext(
  given: CycleContext,
  published: Published | null,
  copy: RegistryView | null = null,
): Promise<CycleReport> {
  const primary = given.registry;
  const ctx = copy === null ? given : { ...given, registry: splitRegistry(primary, copy) };
  const began = ctx.clock.now();
  const pinned = published?.opened.manifest.index_parts ?? [];
  // Read first: what was over by then is among what is read from here on. A replica's is older, and
  // so the end that is signed is nearer.
  const verifierCheckedAt = await ctx.registry.expiryScanDoneAt();
  const grounds = await loadPublishInputs(ctx, published);
  if (grounds === null) return { outcome: 'waiting' };
  if (copy !== null) await requireInPrimary(ctx, primary, grounds);
  const { head, tree, stored, keys, changes, grants } = grounds;
  const maxValidUntil = Math.min(began, verifierCheckedAt ?? -Infinity) + ctx.snapshotTtlMs;
  if (maxValidUntil <= began) {
    return {
      outcome: 'verifier_silent',
      looked_at: verifierCheckedAt === null ? null : formatTime(verifierCheckedAt),
    };
  }

  // Commit point of the checkpoint. From here on some public eye may hold us to it, so it is in the
  // database before any file says so, and only if no other publisher extended the same one.
  await ctx.leadership.require();
  const note =
    stored?.size === head.size
      ? noteInUse(ctx, stored)
      : await signCheckpoint(ctx, head, stored?.size ?? 0);

  // Files that nothing refers to yet. A death here leaves some, which the next tick finds in place
  // or the janitor takes away.
  const before = {
    size: published?.opened.manifest.tree_size ?? 0,
    pins: pinned,
  };
  const index = new IndexBuilder(ctx, before.pins);
  let newProofs = 0;
  if (tree !== null) {
    const proofsBefore = published?.opened.manifest.proofs ?? 0;
    for await (const run of newLeaves(ctx, tree, before.size, proofsBefore, keys)) {
      await ctx.writer.put(run.files);
      newProofs += run.proofs;
      if (run.rows !== null) await index.add(run.rows);
    }
  }
  const rejudged: string[] = [];
  for await (const records of changedRecords(ctx, before, head.size, changes.leaves)) {
    await index.addRecords(records);
    rejudged.push(...records.map(({ id }) => id));
  }
  // Packages repeat what the records of their members say, which are therefore written by now.
  const members = new PublishedMembers(ctx, await index.finish());
  for await (const records of changedPackages(ctx, members, rejudged)) {
    await index.addRecords(records, PACKAGE_PARTS);
  }
  let granted = 0;
  let waits = false;
  for await (const { packages, shares, taken, waits: isWaiting } of changedGrants(
    ctx,
    members,
    grants,
  )) {
    await index.addRecords(packages, PACKAGE_PARTS);
    await index.addRecords(shares, SHARE_PARTS);
    granted += taken;
    waits = isWaiting;
  }
  await ctx.writer.put([keys.file]);
  const pins = await index.finish();

  // The log's own pointer: every tile and entry that it commits to is durable by now.
  if (grounds.publishedNote !== note) {
    await ctx.writer.put([{ path: CHECKPOINT_PATH, bytes: utf8(note), replaces: true }]);
  }

  // Commit point of the snapshot: the manifest, last, and only over the one that this tick began
  // with. Also when nothing is new, because a manifest asserts for a short time only.
  const now = ctx.clock.now();
  const isCut =
    changes.isCut || grants.length === SHARES_PER_CYCLE || (granted < grants.length && !waits);
  const manifest: Manifest = {
    schema_version: SNAPSHOT_SCHEMA,
    generation: nextGeneration(published, now),
    ...validity(isCut ? published : null, maxValidUntil, began, now),
    tree_size: head.size,
    root: toBase64(head.root),
    checkpoint: note,
    proofs: (published?.opened.manifest.proofs ?? 0) + newProofs,
    window: ctx.recentLookupLimit,
    verdict_cursor: changes.cursor,
    keys: keys.pin,
    index_parts: pins,
  };
  await putManifest(ctx, manifest, published);
  // What extends this extends that too.
  ctx.kept.head = null;
  ctx.kept.seen = { generation: manifest.generation, verdictId: changes.seen };

  await ctx.janitor.sweep(manifest, now);
  return {
    outcome: 'published',
    generation: manifest.generation,
    treeSize: head.size,
    newProofs,
    changedRecords: rejudged.length,
    grants: granted,
  };
}

/**
 * The note for a tree that has one already. After a change of keys it is signed once more: the same
 * size and root, which the database holds us to, under the key that readers go over to. Signing is
 * deterministic, so this gives the same bytes with every tick.
 */
function noteInUse(ctx: CycleContext, { note, signedBy, size, root }: StoredCheckpoint): string {
  const { name } = ctx.logSigner;
  if (equalBytes(signedBy.keyHash, ctx.logSigner.keyHash)) return note;
  return signNote(formatCheckpoint({ origin: name, size, root }), ctx.logSigner);
}

async function signCheckpoint(
  ctx: CycleContext,
  head: TreeHead,
  previous: number,
): Promise<string> {
  const note = signNote(formatCheckpoint({ origin: ctx.logSigner.name, ...head }), ctx.logSigner);
  const { size: treeSize, root } = head;
  if (!(await ctx.registry.insertCheckpoint({ treeSize, root, note, previous }))) {
    await ctx.leadership.release();
    throw new LeaseLostError('another publisher has signed a checkpoint in the meantime');
  }
  return note;
}
