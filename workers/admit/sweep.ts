import type { Logger } from '#runtime/log';
import { NO_REQUEST_IDS } from '#runtime/request-ids';
import type { Db } from '#sql/db';
import { pendingOlderThan, type PendingPlace } from '#sql/settlement';
import { firstOf } from './tell.js';

export interface RequeueOptions {
  sql: Db;
  log: Logger;
  enqueue: (ids: string[]) => Promise<unknown>;
  /** Milliseconds that an admission may wait before it is enqueued again. */
  olderThanMs: number;
  groupSize: number;
  /** Told of how many waited, whether or not the queue takes them. */
  found?: (count: number) => void;
}

/**
 * Enqueues again whatever was accepted and has waited too long: the queue lost it, was flushed, or
 * never got it. An extra message does no harm. One sweep looks at one page of them, and returns
 * where the next one goes on; null after the last page, which begins anew.
 */
export async function requeueStaleAdmissions(
  options: RequeueOptions,
  after: PendingPlace | null = null,
): Promise<{ enqueued: number; next: PendingPlace | null }> {
  const { sql, log, enqueue, olderThanMs, groupSize } = options;
  const limit = groupSize * 4;
  const waiting = await pendingOlderThan(sql, olderThanMs, limit, after);
  options.found?.(waiting.length);
  for (let start = 0; start < waiting.length; start += groupSize) {
    await enqueue(waiting.slice(start, start + groupSize).map(({ proofId }) => proofId));
  }
  if (waiting.length > 0) {
    const ids = waiting.map(({ proofId }) => proofId);
    // By which requests they came is known to the engine's log lines alone, beside the proof ids.
    log.warn(
      { admissions: waiting.length, first: firstOf(ids, NO_REQUEST_IDS) },
      'swept: enqueued again',
    );
  }
  return {
    enqueued: waiting.length,
    next: waiting.length < limit ? null : (waiting.at(-1) ?? null),
  };
}
