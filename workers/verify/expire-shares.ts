import { expireShares as recordExpired } from '#sql/grants';
import { transaction } from '#sql/transaction';
import type { VerifyContext } from './context.js';
import { lockVerdicts } from './lock.js';

/** Records share tokens that are over by the database's clock. Returns how many. */
export async function expireShares(context: VerifyContext, limit: number): Promise<number> {
  return transaction(context.sql, async (tx) => {
    await lockVerdicts(tx);
    return recordExpired(tx, limit);
  });
}
