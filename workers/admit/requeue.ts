import { setTimeout as sleep } from 'node:timers/promises';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import type { Logger } from '#runtime/process/log';
import type { AdmitQueue } from '#runtime/queue/queues';
import { pendingOlderThan, type PendingPlace } from '#sql/admissions/outcomes';
import type { Db } from '#sql/db/transaction';
import type { AdmitContext } from './context.js';
import { firstOf } from './log-settled.js';

export interface KeepRequeueingOptions {
  /** Milliseconds between sweeps. */
  everyMs: number;
  /** Milliseconds after which an admission without a proof is enqueued again. */
  olderThanMs: number;
  groupSize: number;
}

/** While the queue has jobs that nobody took, most of what is old is in one of them. */
const BEHIND_JOBS_EVERY_MS = 10_000;

/** Sweeps until it is told to stop. What fails is tried again with the next sweep. */
export async function keepRequeueing(
  { sql, log, metrics }: AdmitContext,
  queue: AdmitQueue,
  { everyMs, olderThanMs, groupSize }: KeepRequeueingOptions,
  signal: AbortSignal,
): Promise<void> {
  const options = {
    sql,
    log,
    enqueue: (ids: string[]) => queue.add(ids),
    olderThanMs,
    groupSize,
    found: (count: number) => metrics?.requeued('admissions', count),
  };
  let place: PendingPlace | null = null;
  let lastSwept = -Infinity;
  while (!signal.aborted) {
    try {
      const isDue = performance.now() - lastSwept >= BEHIND_JOBS_EVERY_MS;
      if (isDue || !(await jobsWait(queue))) {
        lastSwept = performance.now();
        place = (await requeueStaleAdmissions(options, place)).next;
      }
    } catch (error) {
      log.warn({ err: error }, 'the sweep failed; the next one comes');
    }
    await sleep(everyMs, undefined, { signal }).catch(() => null);
  }
}

/** A queue that does not say counts as empty: it may have lost what it had. */
function jobsWait(queue: AdmitQueue): Promise<boolean> {
  return queue.depth().then(
    (depth) => depth > 0,
    () => false,
  );
}

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
