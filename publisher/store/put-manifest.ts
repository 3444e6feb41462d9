import { equalBytes } from '#protocol/bytes';
import { MANIFEST_PATH, signManifest, type Manifest } from '#protocol/snapshot/manifest';
import type { CycleContext } from '../context.js';
import type { Published } from './directory.js';
import { LeaseLostError } from '../errors.js';

/** COMMIT POINT of a snapshot: replaces only the manifest that this cycle started from. */
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
 * At least the Unix time in seconds, so that a rebuilt directory, or another host's, continues above
 * every generation that readers have seen.
 */
export function nextGeneration(published: Published | null, now: number): number {
  const previous = published?.opened.manifest.generation ?? 0;
  return Math.max(previous + 1, Math.floor(now / 1000));
}

/**
 * A process that was suspended for longer than its lease may resume here after another publisher took
 * over. It must not replace the newer manifest.
 */
async function requireUnchanged(ctx: CycleContext, published: Published | null): Promise<void> {
  const present = await ctx.directory.manifestBytes();
  const expected = published?.manifestBytes ?? null;
  const same =
    present === null || expected === null ? present === expected : equalBytes(present, expected);
  if (same) return;
  await ctx.leadership.release();
  throw new LeaseLostError('another publisher published first');
}
