import type { Transaction } from '#sql/db';

/** Held by whoever writes verdicts, so that verdict ids commit in their order. */
export const VERDICT_LOCK = 7_301_002;

/** Takes the lock until the transaction ends; returns the database's time, in epoch milliseconds. */
export async function lockVerdicts(tx: Transaction): Promise<number> {
  await tx`select pg_advisory_xact_lock(${VERDICT_LOCK})`;
  const [row] = await tx<{ now: Date }[]>`select clock_timestamp() as now`;
  if (row === undefined) throw new Error('the database told no time');
  return row.now.getTime();
}
