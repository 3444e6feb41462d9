import type { Transaction } from '../db/transaction.js';
import { AdministrationError } from '../tenants/audit.js';

// Only the role svc_erase may call these functions of the database.

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

/** Records the adoption, and closes pending admissions and revocations that leaves from `first` on decide. */
export async function finishAdoption(tx: Transaction, first: number): Promise<void> {
  await tx`select svc.finish_adoption(${first})`;
}
