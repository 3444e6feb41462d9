import { transaction } from '#sql/transaction';
import {
  verifiedPrefix,
  insertVerdicts,
  takeDueExpiries,
  verdictsForLeaves,
  type NewVerdict,
} from '#sql/verdicts';
import type { ArtifactKind } from '#protocol/status';
import type { VerifyContext } from './context.js';
import { lockVerdicts } from './lock.js';

/**
 * Writes verdicts for validities that are over by the database's clock. Returns how many leaves
 * they concern.
 */
export async function expire(context: VerifyContext, limit: number): Promise<number> {
  const { sql } = context;
  return transaction(sql, async (tx) => {
    const now = await lockVerdicts(tx);
    const prefix = await verifiedPrefix(tx);
    if (prefix === null) return 0;
    const due = await takeDueExpiries(tx, prefix.treeSize, limit);
    const kinds = new Map<number, ArtifactKind[]>();
    for (const { leafIndex, kind } of due) {
      kinds.set(leafIndex, [...(kinds.get(leafIndex) ?? []), kind]);
    }
    const said = await verdictsForLeaves(tx, [...kinds.keys()]);
    const verdicts = [...kinds].map(([leafIndex, over]): NewVerdict => {
      const before = said.get(leafIndex);
      return {
        prefix: null,
        firstIndex: leafIndex,
        lastIndex: leafIndex,
        treeSize: prefix.treeSize,
        root: prefix.root,
        outcome: before?.outcome ?? 'fail',
        expired: [...new Set([...(before?.expired ?? []), ...over])].sort(),
        checks: [],
      };
    });
    await insertVerdicts(tx, verdicts, now);
    return verdicts.length;
  });
}
