import { PACKAGE_PARTS, SHARE_PARTS } from '#protocol/snapshot/manifest';
import type { Pool } from '#sql/db/transaction';
import { firstWaitingChange } from '#sql/fsck/grants';
import type { PublishedContext } from './context.js';

/** Whether a change of a token or a package, by its number and when it was written, must be published. */
export type TakenUp = (changeNo: number, at: Date) => boolean;

/** A change has its time before it is committed, and no transaction of a program lasts longer. */
const COMMITTED_WITHIN_MS = 60_000;

/**
 * Changes are published in their order, so whatever comes before one that is published must be. Of those
 * behind it the end that the manifest was signed with tells how new it claims to be: all that was
 * committed when the verifier last looked, before the publisher read anything. Whoever leaves the newest
 * out has to sign an end that is nearer, or is found here.
 *
 * What waits for a member of a package that is not verified yet holds back all that comes after it.
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
