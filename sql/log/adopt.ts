import type { Db, Transaction } from '../db/transaction.js';
import { AdministrationError } from '../tenants/audit.js';

/** The time of the last adoption, in epoch milliseconds; null without any. */
export async function adoptedAt(sql: Db): Promise<number | null> {
  const [row] = await sql<[{ at: Date | null }]>`select max(at) as at from svc.adoption`;
  return row.at?.getTime() ?? null;
}

// Only the role svc_erase may call the functions of the database below.

/**
 * Takes the append lock and the publisher's lease until the transaction ends, and returns the size of
 * the log.
 *
 * @throws AdministrationError when a publisher runs, or the database has another log
 */
export async function beginAdoption(tx: Transaction, origin: string): Promise<number> {
  try {
    const [row] = await tx<[{ size: number }]>`select svc.begin_adoption(${origin}) as size`;
    return row.size;
  } catch (error) {
    const { code, message } = error as { code?: unknown; message: string };
    if (code !== '55006' && code !== 'P0002') throw error;
    throw new AdministrationError(message, { cause: error });
  }
}

/**
 * Appends published entries, which the caller has verified, as the leaves from `first` on. All belong
 * to one level-0 tile.
 */
export async function adoptEntries(
  tx: Transaction,
  first: number,
  entries: readonly Uint8Array[],
): Promise<void> {
  const hex = entries.map((entry) => `\\x${Buffer.from(entry).toString('hex')}`);
  await tx`select svc.adopt_entries(${first}, ${hex}::text[]::bytea[])`;
}

/** Records the adoption, and closes pending admissions and revocations with an outcome from `first` on. */
export async function finishAdoption(tx: Transaction, first: number): Promise<void> {
  await tx`select svc.finish_adoption(${first})`;
}
