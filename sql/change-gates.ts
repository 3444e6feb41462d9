import { joinTransaction } from './audit.js';
import type { Pool, Transaction } from './db.js';
import { lockHead } from './log.js';

/**
 * Gate changes take the append lock. A worker asks the gates under the same lock, so once this has
 * committed nothing is appended that the old state of the gate would have let through.
 */
export function withGateLock<T>(
  sql: Pool | Transaction,
  change: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return joinTransaction(sql, async (tx) => {
    await lockHead(tx);
    return change(tx);
  });
}
