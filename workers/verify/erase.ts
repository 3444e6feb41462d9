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
 * Writes verdicts for proofs whose payload was erased: nothing is asserted of them from here on, and
 * no check failed. Their entries in the log are verified by the scrubber, as all others are. A leaf
 * that failed before is sent to the scrubber at once, which may be about to say of the payload as it was
 * that it verifies again. Returns how many it took up.
 */
export async function recordErasures(context: VerifyContext, limit: number): Promise<number> {
  return transaction(context.sql, async (tx) => {
    const now = await lockVerdicts(tx);
    const prefix = await verifiedPrefix(tx);
    if (prefix === null) return 0;
    const due = await takeDueErasures(tx, prefix.treeSize, limit);
    if (due.length === 0) return 0;
    const said = await verdictsForLeaves(tx, due);
    const verdicts = due.flatMap((leafIndex): NewVerdict[] => {
      const before = said.get(leafIndex);
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
      if (said.get(leafIndex)?.outcome === 'fail')
        await scrubUrgently(tx, leafIndex, leafIndex + 1);
    }
    await forgetExpiries(tx, due);
    return due.length;
  });
}
