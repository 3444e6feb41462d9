import type { Logger } from '#runtime/log';
import type { Db } from '#sql/db';
import { revocationsOlderThan, type PendingRevocation } from '#sql/revocations';

export interface RevocationRequeueOptions {
  sql: Db;
  log: Logger;
  enqueue: (requestIds: string[]) => Promise<unknown>;
  /** Milliseconds that a request may wait before it is enqueued again. */
  olderThanMs: number;
  groupSize: number;
  /** Told of how many waited, whether or not the queue takes them. */
  found?: (count: number) => void;
}

/**
 * Enqueues again the revocations that were asked for and have waited too long. One sweep looks at
 * one page of them, and returns where the next one goes on; null after the last page, which begins
 * anew, so that what cannot be settled never stands in front of what can.
 */
export async function requeueStaleRevocations(
  options: RevocationRequeueOptions,
  after: PendingRevocation | null = null,
): Promise<{ enqueued: number; next: PendingRevocation | null }> {
  const { sql, log, enqueue, olderThanMs, groupSize } = options;
  const waiting = await revocationsOlderThan(sql, olderThanMs, groupSize, after);
  options.found?.(waiting.length);
  if (waiting.length > 0) {
    await enqueue(waiting.map(({ requestId }) => requestId));
    log.warn({ revocations: waiting.length }, 'swept: revocations enqueued again');
  }
  return {
    enqueued: waiting.length,
    next: waiting.length < groupSize ? null : (waiting.at(-1) ?? null),
  };
}
