import { setTimeout as sleep } from 'node:timers/promises';
import type { AdmitQueue } from '#runtime/queues';
import type { PendingPlace } from '#sql/settlement';
import type { AdmitContext } from './context.js';
import { requeueStaleAdmissions } from './sweep.js';

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
