import type { Pool, Transaction } from './db.js';
import { transaction } from './transaction.js';

/**
 * Runs `work` in one transaction in which the database shows the rows of these tenants and of no
 * other. Outside of it the engine's role sees no tenant's rows at all, so a query that forgets its
 * tenant finds nothing, and one that is tricked finds nothing of anybody else.
 */
export function asTenants<T>(
  sql: Pool,
  tenants: readonly number[],
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return transaction(sql, async (tx) => {
    await tx`select set_config('svc.tenants', ${`{${tenants.join(',')}}`}, true)`;
    return work(tx);
  });
}
