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

/** Expiry times of a verified proof's artifacts, from its signed AEP. */
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

/** Records share tokens that have expired by the database's clock. Returns how many. */
export async function expireShares(context: VerifyContext, limit: number): Promise<number> {
  return transaction(context.sql, async (tx) => {
    await lockVerdicts(tx);
    return recordExpired(tx, limit);
  });
}

/**
 * Records verdicts for artifacts that have expired by the database's clock. Returns the number of
 * leaves.
 */
export async function recordExpiries(context: VerifyContext, limit: number): Promise<number> {
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
    const verdictsBefore = await verdictsForLeaves(tx, [...kinds.keys()]);
    const verdicts = [...kinds].map(([leafIndex, expired]): NewVerdict => {
      const before = verdictsBefore.get(leafIndex);
      return {
        prefix: null,
        firstIndex: leafIndex,
        lastIndex: leafIndex,
        treeSize: prefix.treeSize,
        root: prefix.root,
        outcome: before?.outcome ?? 'fail',
        expired: [...new Set([...(before?.expired ?? []), ...expired])].sort(),
        checks: [],
      };
    });
    await insertVerdicts(tx, verdicts, now);
    return verdicts.length;
  });
}

/**
 * Records all erasures and expiries, in steps of `batch` until none is left. Then stores the start
 * time of the scan: everything that expired by then is recorded, and the publisher limits the
 * validity of snapshots by that time.
 *
 * @param isCurrent whether the verifier could follow the log. If not, the scan time is not stored,
 *   because unread leaves may hold revocations and key changes.
 */
export async function scanExpiries(
  context: VerifyContext,
  batch: number,
  isCurrent = true,
): Promise<void> {
  const startedAt = await databaseTime(context.sql);
  while ((await recordErasures(context, batch)) > 0);
  while ((await recordExpiries(context, batch)) > 0);
  while ((await expireShares(context, batch)) > 0);
  if (isCurrent) await recordExpiryScan(context.sql, startedAt);
}
