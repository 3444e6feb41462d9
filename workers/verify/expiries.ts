import { transaction } from '#sql/db/transaction';
import {
  forgetExpiries,
  takeDueErasures,
  dueAtDatabaseTime,
  insertVerdicts,
  kindsByLeaf,
  type NewVerdict,
  recordExpiryScan,
  scrubUrgently,
  takeDueExpiries,
  verdictOn,
  verdictsForLeaves,
  verifiedPrefix,
} from '#sql/log/verdicts';
import { expireShares as recordExpired } from '#sql/lifecycle/share-tokens';
import { ERASED_CHECKS } from './check-leaf.js';
import type { VerifyContext } from './context.js';

/** Records share tokens that have expired by the database's clock. Returns how many. */
export async function expireShares(context: VerifyContext, limit: number): Promise<number> {
  const { clock, sql } = context;
  return transaction(sql, async (tx) => recordExpired(tx, await clock.lock(tx), limit));
}

/**
 * Records verdicts for artifacts that have expired by the database's clock. Returns the number of
 * leaves with due expiries. A failing leaf gets no verdict, because that verdict would replace the failed checks:
 * the scrubber records the expiries when the leaf passes again.
 */
export async function recordExpiries(context: VerifyContext, limit: number): Promise<number> {
  const { clock, sql } = context;
  return transaction(sql, async (tx) => {
    const now = await clock.lock(tx);
    const prefix = await verifiedPrefix(tx);
    if (prefix === null) return 0;
    const due = await takeDueExpiries(tx, now, prefix.treeSize, limit);
    const kinds = kindsByLeaf(due);
    const verdictsBefore = await verdictsForLeaves(tx, [...kinds.keys()]);
    const verdicts = [...kinds].flatMap(([leafIndex, kindsNow]): NewVerdict[] => {
      const before = verdictsBefore.get(leafIndex);
      if (before?.outcome !== 'pass') return [];
      const expired = [...new Set([...before.expired, ...kindsNow])].sort();
      return [verdictOn(leafIndex, prefix, { outcome: 'pass', expired, checks: [] })];
    });
    await insertVerdicts(tx, verdicts, now);
    return kinds.size;
  });
}

/**
 * Records `erased` verdicts for proofs whose payload was erased. The scrubber still verifies their
 * log entries. A leaf that failed before is scrubbed urgently: a concurrent pass may have read its
 * payload before the erasure and be about to write `pass`. Returns the number of leaves.
 */
export async function recordErasures(context: VerifyContext, limit: number): Promise<number> {
  return transaction(context.sql, async (tx) => {
    const now = await context.clock.lock(tx);
    const prefix = await verifiedPrefix(tx);
    if (prefix === null) return 0;
    const due = await takeDueErasures(tx, prefix.treeSize, limit);
    if (due.length === 0) return 0;
    const verdictsBefore = await verdictsForLeaves(tx, due);
    const verdicts = due.flatMap((leafIndex): NewVerdict[] => {
      const before = verdictsBefore.get(leafIndex);
      if (before?.outcome !== 'pass') return [];
      const { expired } = before;
      return [verdictOn(leafIndex, prefix, { outcome: 'erased', expired, checks: ERASED_CHECKS })];
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

/**
 * Records all due erasures and expiries, in steps of `batch`. After all steps, stores the start time of the scan:
 * everything that expired before this time is recorded, so the publisher limits the validity of snapshots by it.
 *
 * Returns whether it had anything to record.
 *
 * @param isCurrent whether the verifier could follow the log. If not, the scan time is not stored,
 *   because unread leaves may hold revocations and key changes.
 */
export async function scanExpiries(
  context: VerifyContext,
  batch: number,
  isCurrent = true,
): Promise<boolean> {
  const { now, isDue } = await dueAtDatabaseTime(context.sql);
  if (isDue) {
    while ((await recordErasures(context, batch)) > 0);
    while ((await recordExpiries(context, batch)) > 0);
    while ((await expireShares(context, batch)) > 0);
  }
  if (isCurrent) await recordExpiryScan(context.sql, now);
  return isDue;
}
