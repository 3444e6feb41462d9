import { equalBytes } from '#protocol/bytes';
import { formatCheckpoint } from '#protocol/checkpoint';
import { signNote } from '#protocol/note';
import { MANIFEST_PATH, signManifest, type Manifest } from '#protocol/snapshot/manifest';
import { formatTime } from '#protocol/time';
import type { CycleContext } from './context.js';
import { LeaseLostError } from './errors.js';
import type { StoredCheckpoint } from './plan/inputs.js';
import type { TreeHead } from './plan/tree.js';
import type { Published } from './store/directory.js';

/**
 * COMMIT POINT of the checkpoint. A published checkpoint binds the log, so the database stores it
 * before any file does, and only if no other publisher extended the same one. Returns the note.
 */
export async function commitCheckpoint(
  ctx: CycleContext,
  head: TreeHead,
  stored: StoredCheckpoint | null,
): Promise<string> {
  await ctx.leadership.require();
  if (stored?.size === head.size) return existingNote(ctx, stored);
  const { size: treeSize, root } = head;
  const note = signNote(formatCheckpoint({ origin: ctx.logSigner.name, ...head }), ctx.logSigner);
  const previous = stored?.size ?? 0;
  if (await ctx.registry.insertCheckpoint({ treeSize, root, note, previous })) return note;
  await ctx.leadership.release();
  throw new LeaseLostError('another publisher signed a checkpoint first');
}

/**
 * The note for a tree that already has a checkpoint. After a key change it is signed again, for the
 * stored size and root. Ed25519 is deterministic, so every cycle gives the same bytes.
 */
function existingNote(ctx: CycleContext, { note, signedBy, size, root }: StoredCheckpoint): string {
  const { name } = ctx.logSigner;
  if (equalBytes(signedBy.keyHash, ctx.logSigner.keyHash)) return note;
  return signNote(formatCheckpoint({ origin: name, size, root }), ctx.logSigner);
}

/** COMMIT POINT of the snapshot: replaces only the manifest that this cycle started from. */
export async function commitManifest(
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
 * A process that was suspended for longer than its lease may resume here and must not replace the
 * manifest of the publisher that took over.
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

/**
 * The validity of a manifest. A manifest that leaves changes to the next cycle lacks verdicts, so
 * it must not outlast the previous one. If it has expired before it is signed, `issued_at` moves
 * before its end: the manifest is published as expired, and the next cycle continues from it.
 *
 * @param before the manifest that the new one must not outlast, if any
 */
export function validity(
  before: Published | null,
  maxValidUntil: number,
  startedAt: number,
  now: number,
): Pick<Manifest, 'issued_at' | 'valid_until'> {
  const end = Math.min(maxValidUntil, before?.opened.validUntil ?? Infinity);
  const issued = [now, startedAt].find((at) => at < end) ?? before?.opened.issuedAt ?? startedAt;
  return { issued_at: formatTime(issued), valid_until: formatTime(end) };
}
