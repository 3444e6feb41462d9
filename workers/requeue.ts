import { setTimeout as sleep } from 'node:timers/promises';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import type { Logger } from '#runtime/process/log';
import type { AdmitQueue } from '#runtime/queue/queues';
import { pendingOlderThan, type PendingPlace } from '#sql/admissions/outcomes';
import type { Db } from '#sql/db/transaction';
import { type PendingRevocation, revocationsOlderThan } from '#sql/lifecycle/revocations';
import type { AdmitContext } from './admit/context.js';
import { firstOf } from './admit/process.js';

/** Runs `work` now and every `ms` milliseconds until the signal. Logs a failure; the next run retries. */
export async function repeat(
  ms: number,
  signal: AbortSignal,
  work: () => Promise<void>,
  failed: (error: unknown) => void,
): Promise<void> {
  while (!signal.aborted) {
    await work().catch(failed);
    await sleep(ms, undefined, { signal }).catch(() => null);
  }
}

/** Interval while the queue has waiting jobs, which contain most stale admissions. */
const BACKLOG_INTERVAL_MS = 10_000;

/** Requeues stale admissions and revocations every `everyMs` milliseconds until the signal. */
export async function keepRequeueing(
  { sql, log, metrics }: AdmitContext,
  queue: AdmitQueue,
  { everyMs, ...limits }: { everyMs: number } & Pick<RequeueOptions, 'olderThanMs' | 'groupSize'>,
  signal: AbortSignal,
): Promise<void> {
  let lastSearch = -Infinity;
  let admission: PendingPlace | null = null;
  const requeueAdmissions = async (): Promise<void> => {
    const isDue = performance.now() - lastSearch >= BACKLOG_INTERVAL_MS;
    if (!isDue && (await hasWaitingJobs(queue))) return;
    lastSearch = performance.now();
    const enqueue = (ids: string[]) => queue.add(ids);
    const found = (count: number) => metrics?.requeued('admissions', count);
    const options = { sql, log, enqueue, found, ...limits };
    admission = (await requeueStaleAdmissions(options, admission)).next;
  };
  let revocation: PendingRevocation | null = null;
  const requeueRevocations = async (): Promise<void> => {
    const enqueue = (ids: string[]) => queue.addRevocations(ids);
    const found = (count: number) => metrics?.requeued('revocations', count);
    const options = { sql, log, enqueue, found, ...limits };
    revocation = (await requeueStaleRevocations(options, revocation)).next;
  };
  await Promise.all([
    repeat(everyMs, signal, requeueAdmissions, (error) => {
      log.warn({ err: error }, 'admission requeue failed; it is retried');
    }),
    repeat(everyMs, signal, requeueRevocations, (error) => {
      log.warn({ err: error }, 'revocation requeue failed; it is retried');
    }),
  ]);
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
  /** Milliseconds that an item may wait before it is enqueued again. */
  olderThanMs: number;
  /** Ids per job. */
  groupSize: number;
  /** Called with the number of stale items, before they are enqueued. */
  found?: (count: number) => void;
}

/** `next` is the cursor of the next page; null after the last one. */
export interface RequeuedPage<P> {
  enqueued: number;
  next: P | null;
}

/**
 * Requeues a page of stale admissions: the queue lost them, was flushed, or never got them. Duplicate
 * messages are harmless.
 */
export async function requeueStaleAdmissions(
  options: RequeueOptions,
  after: PendingPlace | null = null,
): Promise<RequeuedPage<PendingPlace>> {
  const { sql, log, enqueue, olderThanMs, groupSize, found } = options;
  const limit = groupSize * 4;
  const stale = await pendingOlderThan(sql, olderThanMs, limit, after);
  found?.(stale.length);
  const ids = stale.map(({ proofId }) => proofId);
  for (let start = 0; start < ids.length; start += groupSize) {
    await enqueue(ids.slice(start, start + groupSize));
  }
  if (ids.length > 0) {
    // The engine's log lines map these proof ids to request ids.
    const first = firstOf(ids, NO_REQUEST_IDS);
    log.warn({ admissions: ids.length, first }, 'stale admissions requeued');
  }
  return pageOf(stale, limit);
}

/** Requeues a page of stale revocations. A failing request does not block later pages. */
export async function requeueStaleRevocations(
  options: RequeueOptions,
  after: PendingRevocation | null = null,
): Promise<RequeuedPage<PendingRevocation>> {
  const { sql, log, enqueue, olderThanMs, groupSize, found } = options;
  const stale = await revocationsOlderThan(sql, olderThanMs, groupSize, after);
  found?.(stale.length);
  if (stale.length > 0) {
    await enqueue(stale.map(({ requestId }) => requestId));
    log.warn({ revocations: stale.length }, 'stale revocations requeued');
  }
  return pageOf(stale, groupSize);
}

function pageOf<P>(stale: P[], limit: number): RequeuedPage<P> {
  return { enqueued: stale.length, next: stale.length < limit ? null : (stale.at(-1) ?? null) };
}
