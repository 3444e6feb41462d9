import { rangesAt, type VoidedRange } from '#protocol/snapshot/voided';
import type { CycleContext } from '../context.js';
import type { Published } from '../store/directory.js';
import type { VerdictChange } from '../registry/registry-view.js';
import { FatalPublishError } from '../errors.js';

/** Verdicts on single leaves that one tick publishes; more wait for the next. */
const VERDICTS_PER_TICK = 20_000;
/** Of those that may wait, so few that a tick stays short and new proofs are published soon. */
const STATED_PER_TICK = 4_000;

export interface VerdictChanges {
  /** Leaves with new verdicts. */
  leaves: number[];
  /** They have all verdicts up to this one. */
  cursor: number;
  /** They have all up to this one but what the list of keys states already. */
  seen: number;
  /** Others than those are left to the next tick. */
  isCut: boolean;
}

/**
 * The leaves that have new verdicts since the published snapshot, as many as one tick publishes.
 * Proofs that only a compromised key voids may wait, because the list of keys in the same snapshot
 * states that they are void; nothing else waits behind them.
 * Stops the publisher when the registry does not have the verdicts that are published.
 *
 * @param verdictId the one to go on from when nothing is published
 * @param isStated whether the list of keys states what a verdict found
 */
export async function verdictChanges(
  ctx: CycleContext,
  published: Published | null,
  verdictId: number,
  isStated: (change: VerdictChange) => boolean,
): Promise<VerdictChanges> {
  // A snapshot that is written from nothing is rendered from the verdicts in force.
  if (published === null) return { leaves: [], cursor: verdictId, seen: verdictId, isCut: false };
  const { verdict_cursor: since, generation } = published.opened.manifest;
  if ((await ctx.registry.lastVerdictId()) < since) throw behind(since);

  const { seen: kept } = ctx.kept;
  const seenBefore = kept?.generation === generation ? kept.verdictId : since;
  const leaves: number[] = [];
  let [cursor, seen] = [since, since];
  let [stated, others] = [STATED_PER_TICK, VERDICTS_PER_TICK];
  for (let isWhole = true, isMore = true; isMore;) {
    const page = await ctx.registry.verdictChangesSince(seen, VERDICTS_PER_TICK);
    for (const change of page) {
      if (isStated(change)) {
        isWhole &&= stated > 0;
        if (isWhole) {
          stated -= 1;
          leaves.push(change.leafIndex);
        }
      } else if (change.verdictId > seenBefore) {
        if (others === 0) return { leaves, cursor, seen, isCut: true };
        others -= 1;
        leaves.push(change.leafIndex);
      }
      seen = change.verdictId;
      if (isWhole) cursor = seen;
    }
    isMore = page.length === VERDICTS_PER_TICK;
    if (!isWhole) seen = Math.max(seen, seenBefore);
  }
  return { leaves, cursor, seen, isCut: false };
}

/** Whether a verdict found no more than that a compromised key of this list signed the proof. */
export function isStatedBy(
  ranges: readonly VoidedRange[],
  size: number,
): (change: VerdictChange) => boolean {
  return ({ leafIndex, treeSize, failedChecks, keyId }) =>
    failedChecks.length === 1 &&
    failedChecks[0] === 'signing_key' &&
    // A verdict on a longer log may rest on a key entry that this list does not have yet.
    treeSize <= size &&
    rangesAt(ranges, leafIndex).some((range) => range.keyId === keyId);
}

function behind(cursor: number): FatalPublishError {
  return new FatalPublishError(
    'changes_behind',
    `The published snapshot has verdict ${cursor}, and the database does not: it was restored, or failed over, to an older state, ` +
      'and what failed or was over since might be asserted for good. Bring back a database that holds every published verdict and start the publisher again. ' +
      'If those verdicts are lost for good, delete lookup/ in the snapshot directory and start the publisher again: it is written anew from the registry, and the log beside it stays as it is.',
  );
}
