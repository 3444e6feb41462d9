import type { Aep } from '#protocol/schemas/aep';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import { parseTime } from '#protocol/time';
import { transaction } from '#sql/db/transaction';
import { expireShares as recordExpired } from '#sql/lifecycle/shares';
import {
  databaseTime,
  type Expiry,
  insertVerdicts,
  type NewVerdict,
  recordExpiryScan,
  takeDueExpiries,
  verdictsForLeaves,
  verifiedPrefix,
} from '#sql/log/verdicts';
import { lockVerdicts, type VerifyContext } from './context.js';
import { recordErasures } from './erase.js';

/** When the artifacts of a verified proof stop asserting, as its signed AEP says; of none, never. */
export function expiriesOf(leafIndex: number, aep: Aep | null): Expiry[] {
  if (aep === null) return [];
  const ends: Partial<Record<ArtifactKind, string | null>> = aep.valid_until;
  return ARTIFACT_KINDS.flatMap((kind) => {
    const end = ends[kind];
    return end === undefined || end === null
      ? []
      : [{ leafIndex, kind, expiresAt: parseTime(end) }];
  });
}

/** Records share tokens that are over by the database's clock. Returns how many. */
export async function expireShares(context: VerifyContext, limit: number): Promise<number> {
  return transaction(context.sql, async (tx) => {
    await lockVerdicts(tx);
    return recordExpired(tx, limit);
  });
}

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

/**
 * Looks at everything that may be over, validities and share tokens, and at what was erased, in steps of `batch`: a backlog
 * must not wait for the next look. Then, and only if nothing failed, says when it began: what was
 * over by then is recorded. That is how far the publisher may go on asserting.
 *
 * @param isCurrent whether the log could be followed. While not, what is over is recorded all the same,
 *   but nothing is said: revocations and ends of keys are in the part of the log that is not read.
 */
export async function scanExpiries(
  context: VerifyContext,
  batch: number,
  isCurrent = true,
): Promise<void> {
  const began = await databaseTime(context.sql);
  while ((await recordErasures(context, batch)) > 0);
  while ((await expire(context, batch)) > 0);
  while ((await expireShares(context, batch)) > 0);
  if (isCurrent) await recordExpiryScan(context.sql, began);
}
