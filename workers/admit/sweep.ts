import type { Logger } from '#runtime/log';
import type { Db } from '#sql/db';
import { pendingOlderThan } from '#sql/settlement';

export interface SweepOptions {
  sql: Db;
  log: Logger;
  enqueue: (ids: string[]) => Promise<unknown>;
  /** Milliseconds that an admission may wait before it is enqueued again. */
  olderThanMs: number;
  groupSize: number;
}

/**
 * Enqueues again whatever was accepted and has waited too long: the queue lost it, was flushed, or
 * never got it. An extra message does no harm. Returns how many ids were enqueued.
 */
export async function sweep(options: SweepOptions): Promise<number> {
  const { sql, log, enqueue, olderThanMs, groupSize } = options;
  const ids = await pendingOlderThan(sql, olderThanMs, groupSize * 4);
  for (let start = 0; start < ids.length; start += groupSize) {
    await enqueue(ids.slice(start, start + groupSize));
  }
  if (ids.length > 0) log.warn({ admissions: ids.length }, 'swept: enqueued again');
  return ids.length;
}
