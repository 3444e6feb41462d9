import type { Pool, Transaction } from './db.js';
import { pipeline, openedTransaction, readTransaction, type Statement } from './transaction.js';

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
  return openedTransaction(sql, (tx) => scopeTo(tx, tenants), work);
}

/** The same after something that is read first, without a round trip of its own. */
export function asTenantsAfter<O, T>(
  sql: Pool,
  tenants: readonly number[],
  opening: (tx: Transaction) => Promise<O>,
  work: (tx: Transaction, opened: O) => Promise<T>,
): Promise<T> {
  const open = async (tx: Transaction): Promise<O> => {
    const scoped = scopeTo(tx, tenants).execute();
    const [, opened] = await pipeline(scoped, opening(tx));
    return opened;
  };
  return openedTransaction(sql, open, work);
}

/** The same for one statement that only reads: all of it is one round trip. */
export function readAsTenants<T>(
  sql: Pool,
  tenants: readonly number[],
  reading: (tx: Transaction) => Statement<T>,
): Promise<T> {
  return readTransaction(sql, (tx) => scopeTo(tx, tenants), reading);
}

const scopeTo = (tx: Transaction, tenants: readonly number[]) => tx`
  select set_config('svc.tenants', ${`{${[...new Set(tenants)].join(',')}}`}, true)`;
