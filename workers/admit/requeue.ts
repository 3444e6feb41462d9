import { setTimeout as sleep } from 'node:timers/promises';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import type { Logger } from '#runtime/process/log';
import type { AdmitQueue } from '#runtime/queue/queues';
import { pendingOlderThan, type PendingPlace } from '#sql/admissions/outcomes';
import type { Db } from '#sql/db/transaction';
import type { AdmitContext } from './context.js';
import { firstOf } from './log-settled.js';

export interface KeepRequeueingOptions {
  /** Milliseconds between searches. */
  everyMs: number;
  /** Milliseconds after which an admission without a proof is enqueued again. */
  olderThanMs: number;
  groupSize: number;
}

/** While the queue has waiting jobs, most stale admissions are in one of them. */
const BACKLOG_INTERVAL_MS = 10_000;

/** Requeues stale admissions until the signal. Retries after a failure. */
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
  let cursor: PendingPlace | null = null;
  let lastSearch = -Infinity;
  while (!signal.aborted) {
    try {
      const isDue = performance.now() - lastSearch >= BACKLOG_INTERVAL_MS;
      if (isDue || !(await hasWaitingJobs(queue))) {
        lastSearch = performance.now();
        cursor = (await requeueStaleAdmissions(options, cursor)).next;
      }
    } catch (error) {
      log.warn({ err: error }, 'admission requeue failed; it is retried');
    }
    await sleep(everyMs, undefined, { signal }).catch(() => null);
  }
}

/** An unreachable queue counts as empty: it may have lost its jobs. */
function hasWaitingJobs(queue: AdmitQueue): Promise<boolean> {
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
  /** Called with the number of stale admissions, before they are enqueued. */
  found?: (count: number) => void;
}

/**
 * Requeues stale admissions: the queue lost them, was flushed, or never got them. Duplicate
 * messages are harmless. One call handles one page and returns the cursor of the next one, or null
 * after the last page.
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
    // The engine's log lines map these proof ids to request ids.
    log.warn(
      { admissions: waiting.length, first: firstOf(ids, NO_REQUEST_IDS) },
      'stale admissions requeued',
    );
  }
  return {
    enqueued: waiting.length,
    next: waiting.length < limit ? null : (waiting.at(-1) ?? null),
  };
}
