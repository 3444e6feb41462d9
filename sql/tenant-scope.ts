import type { Pool, Transaction } from './db.js';
import { transaction } from './transaction.js';

/** An id, and whose it is: nothing is read of it for anybody else. */
export interface OwnId {
  tenantNo: number;
  id: string;
}

/**
 * Runs `work` in one transaction in which the database shows the rows of these tenants and of no
 * other. Outside of it the engine's role sees no tenant's rows at all, so a query that forgets its
 * tenant finds nothing, and one that is tricked finds nothing of anybody else.
 *
 * Never inside another: with every connection held by an outer one, the inner ones would wait for ever.
 */
export function asTenants<T>(
  sql: Pool,
  tenants: readonly number[],
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  return transaction(sql, async (tx) => {
    // Sent ahead of the first statement of `work` and not waited for: the connection keeps their
    // order, and were it to fail, the transaction would be aborted before that statement ran.
    const scoped = tx`
      select set_config('svc.tenants', ${`{${[...new Set(tenants)].join(',')}}`}, true)`.execute();
    const [scope, result] = await Promise.allSettled([scoped, work(tx)]);
    if (scope.status === 'rejected') throw scope.reason;
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });
}
