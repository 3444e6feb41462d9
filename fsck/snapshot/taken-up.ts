import { PACKAGE_PARTS, SHARE_PARTS } from '#protocol/snapshot/manifest';
import type { Pool } from '#sql/db/transaction';
import { firstWaitingChange } from '#sql/fsck/grants';
import type { PublishedContext } from './context.js';

/** Whether a change, by its number and time, must be published. */
export type TakenUp = (changeNo: number, at: Date) => boolean;

/** Longer than any transaction between a change's time and its commit. */
const COMMITTED_WITHIN_MS = 60_000;

/**
 * Changes are published in order, so every change before a published one must be published. For later
 * ones the manifest's signed expiry shows its age: it must contain what was committed at the last expiry
 * scan. Omitting the newest changes therefore needs an earlier expiry, or is found here.
 *
 * A package with a member that is not verified yet defers all later changes.
 */
export async function appliedChanges(
  { opened, snapshotTtlMs }: PublishedContext,
  sql: Pool,
): Promise<TakenUp> {
  const { manifest, issuedAt, validUntil } = opened;
  const last = manifest.index_parts.reduce(
    (most, { kind, last_leaf }) =>
      kind === SHARE_PARTS || kind === PACKAGE_PARTS ? Math.max(most, last_leaf) : most,
    0,
  );
  const waiting = (await firstWaitingChange(sql, last, manifest.tree_size)) ?? Infinity;
  const due = Math.min(issuedAt, validUntil - snapshotTtlMs) - COMMITTED_WITHIN_MS;
  return (changeNo, at) => changeNo <= last || (changeNo < waiting && at.getTime() <= due);
}
