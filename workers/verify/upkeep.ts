import { databaseTime, recordExpiryScan } from '#sql/upkeep';
import type { VerifyContext } from './context.js';
import { recordErasures } from './erase.js';
import { expire } from './expire.js';
import { expireShares } from './expire-shares.js';

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
