import { equalBytes } from '#protocol/bytes';
import { MANIFEST_PATH, signManifest, type Manifest } from '#protocol/snapshot/manifest';
import type { CycleContext } from '../context.js';
import type { Published } from './directory.js';
import { LeaseLostError } from '../errors.js';

/** Commit point of a snapshot: its manifest goes over the one that this tick began with, only. */
export async function putManifest(
  ctx: CycleContext,
  manifest: Manifest,
  published: Published | null,
): Promise<void> {
  await ctx.leadership.require();
  await requireUnchanged(ctx, published);
  const bytes = signManifest(manifest, ctx.snapshotSigner);
  await ctx.writer.put([{ path: MANIFEST_PATH, bytes, replaces: true }]);
  ctx.onPublished?.(manifest);
}

/**
 * At least the seconds since 1970, so that a directory that was lost and written anew, or another
 * machine's, goes on above what readers have seen.
 */
export function nextGeneration(published: Published | null, now: number): number {
  const previous = published?.opened.manifest.generation ?? 0;
  return Math.max(previous + 1, Math.floor(now / 1000));
}

/**
 * A publisher that was stopped for longer than its lock lasts wakes up here, behind the one that
 * took over, and must not put its older manifest over the newer one.
 */
async function requireUnchanged(ctx: CycleContext, published: Published | null): Promise<void> {
  const present = await ctx.directory.manifestBytes();
  const expected = published?.manifestBytes ?? null;
  const same =
    present === null || expected === null ? present === expected : equalBytes(present, expected);
  if (same) return;
  await ctx.leadership.release();
  throw new LeaseLostError('another publisher has published in the meantime');
}
