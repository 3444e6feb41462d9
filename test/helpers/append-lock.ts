import type { Pool, Transaction } from '#sql/db/transaction';
import { lockHead } from '#sql/log/log';
import { eventually } from './stack.js';

export interface HeldLock {
  /** The transaction that holds it, in which more may be done. */
  tx: Transaction;
  size: number;
  commit(): Promise<void>;
}

/** Holds the append lock, as an append under way does. */
export async function holdAppendLock(sql: Pool): Promise<HeldLock> {
  const tx = await sql.reserve();
  await tx`begin`;
  const size = await lockHead(tx);
  return {
    tx,
    size,
    commit: async () => {
      await tx`commit`;
      tx.release();
    },
  };
}

/** Resolves with the process ids once `count` connections of the database wait for a lock. */
export function untilWaiting(sql: Pool, count = 1): Promise<number[]> {
  return eventually(
    async () => {
      const rows = await sql<{ pid: number }[]>`
        select pid from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`;
      return rows.length >= count ? rows.map((row) => row.pid) : null;
    },
    5_000,
    'a wait for the lock',
  );
}
