import { transaction } from '#sql/db/transaction';
import { forgetExpiries, takeDueErasures } from '#sql/erasure/due';
import {
  verifiedPrefix,
  insertVerdicts,
  scrubUrgently,
  verdictsForLeaves,
  type NewVerdict,
} from '#sql/log/verdicts';
import { ERASED_CHECKS } from './check-leaf.js';
import { lockVerdicts, type VerifyContext } from './context.js';

/**
 * Records `erased` verdicts for proofs whose payload was erased. The scrubber goes on verifying their
 * log entries. A leaf that failed before is scrubbed urgently: a concurrent pass may be about to pass
 * the payload that it read before the erasure. Returns the number of leaves.
 */
export async function recordErasures(context: VerifyContext, limit: number): Promise<number> {
  return transaction(context.sql, async (tx) => {
    const now = await lockVerdicts(tx);
    const prefix = await verifiedPrefix(tx);
    if (prefix === null) return 0;
    const due = await takeDueErasures(tx, prefix.treeSize, limit);
    if (due.length === 0) return 0;
    const verdictsBefore = await verdictsForLeaves(tx, due);
    const verdicts = due.flatMap((leafIndex): NewVerdict[] => {
      const before = verdictsBefore.get(leafIndex);
      if (before?.outcome !== 'pass') return [];
      return [
        {
          prefix: null,
          firstIndex: leafIndex,
          lastIndex: leafIndex,
          treeSize: prefix.treeSize,
          root: prefix.root,
          outcome: 'erased',
          expired: before.expired,
          checks: ERASED_CHECKS,
        },
      ];
    });
    await insertVerdicts(tx, verdicts, now);
    for (const leafIndex of due) {
      if (verdictsBefore.get(leafIndex)?.outcome === 'fail')
        await scrubUrgently(tx, leafIndex, leafIndex + 1);
    }
    await forgetExpiries(tx, due);
    return due.length;
  });
}
