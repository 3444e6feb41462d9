import { rangesAt, type VoidedRange } from '#protocol/snapshot/voided';
import type { CycleContext } from '../context.js';
import type { Published } from '../store/directory.js';
import type { VerdictChange } from '#sql/log/verdicts';
import { FatalPublishError } from '../errors.js';

/** Limit of verdicts on single leaves per cycle. */
const VERDICTS_PER_CYCLE = 20_000;
/** Limit of verdicts that the key list states already, so that a cycle stays short. */
const STATED_PER_CYCLE = 4_000;

export interface VerdictChanges {
  /** Leaves with new verdicts. */
  leaves: number[];
  /** `leaves` covers every verdict up to this one. */
  cursor: number;
  /** `leaves` covers every verdict up to this one, except those that the key list states. */
  seen: number;
  /** Whether other verdicts wait for the next cycle. */
  isCut: boolean;
}

/**
 * The leaves with new verdicts since the published snapshot, up to the limit of one cycle. Proofs that
 * only a compromised key voids may wait, because the key list of the same snapshot voids them already;
 * no other verdict waits behind them. Stops the publisher if the registry lacks published verdicts.
 *
 * @param verdictId cursor to use without a published snapshot
 * @param isStated whether the key list states the result of a verdict
 */
export async function verdictChanges(
  ctx: CycleContext,
  published: Published | null,
  verdictId: number,
  isStated: (change: VerdictChange) => boolean,
): Promise<VerdictChanges> {
  // A first snapshot is rendered from the effective verdicts.
  if (published === null) return { leaves: [], cursor: verdictId, seen: verdictId, isCut: false };
  const { verdict_cursor: since, generation } = published.opened.manifest;
  if ((await ctx.registry.lastVerdictId()) < since) throw behind(since);

  const { seen: last } = ctx.memory;
  const seenBefore = last?.generation === generation ? last.verdictId : since;
  const leaves: number[] = [];
  let [cursor, seen] = [since, since];
  let [stated, others] = [STATED_PER_CYCLE, VERDICTS_PER_CYCLE];
  for (let isWhole = true, isMore = true; isMore;) {
    const page = await ctx.registry.verdictChangesSince(seen, VERDICTS_PER_CYCLE);
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
    isMore = page.length === VERDICTS_PER_CYCLE;
    ctx.progress();
    if (!isWhole) seen = Math.max(seen, seenBefore);
  }
  return { leaves, cursor, seen, isCut: false };
}

/** Whether a compromised key of this list is the only reason why a verdict failed. */
export function isStatedBy(
  ranges: readonly VoidedRange[],
  size: number,
): (change: VerdictChange) => boolean {
  return ({ leafIndex, treeSize, failedChecks, keyId }) =>
    failedChecks.length === 1 &&
    failedChecks[0] === 'signing_key' &&
    // A verdict on a longer log may depend on a key entry that this list lacks.
    treeSize <= size &&
    rangesAt(ranges, leafIndex).some((range) => range.keyId === keyId);
}

function behind(cursor: number): FatalPublishError {
  return new FatalPublishError(
    'changes_behind',
    `The published snapshot has verdict ${cursor}, and the database does not: it was restored, or failed over, to an older state, ` +
      'and proofs that failed or expired since might stay valid. Restore a database that holds every published verdict and start the publisher again. ' +
      'If those verdicts are lost for good, delete lookup/ in the snapshot directory and start the publisher again: the publisher rebuilds it from the registry, and the log beside it stays unchanged.',
  );
}
