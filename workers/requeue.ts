import { setTimeout as sleep } from 'node:timers/promises';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import { logRarely, type Logger } from '#runtime/process/log';
import type { AdmitQueue } from '#runtime/queue/queues';
import { isAnythingPending, pendingOlderThan, type PendingPlace } from '#sql/admissions/outcomes';
import type { Db } from '#sql/db/transaction';
import { type PendingRevocation, revocationsOlderThan } from '#sql/lifecycle/revocations';
import type { AdmitContext, AdmitMetrics } from './admit/context.js';
import type { AdmissionGroups } from './admit/groups.js';
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

/** Interval while many admissions wait for a group: most stale admissions are then known. */
const BACKLOG_INTERVAL_MS = 10_000;

interface SearchOptions extends Pick<RequeueOptions, 'olderThanMs' | 'groupSize'> {
  everyMs: number;
  /** Whether the queue is down, so that nothing can be enqueued. */
  isDown: () => boolean;
  groups: Pick<AdmissionGroups, 'take' | 'waiting'>;
  /** Requeues lost chunks. Never rejects. */
  chunks: () => Promise<void>;
}

/**
 * Requeues stale admissions, revocations and chunks every `everyMs` milliseconds until the signal. While
 * nothing is pending, each search is one statement.
 */
export async function keepRequeueing(
  { sql, log, metrics }: Pick<AdmitContext, 'sql' | 'log' | 'metrics'>,
  queue: AdmitQueue,
  { everyMs, isDown, groups, chunks, ...limits }: SearchOptions,
  signal: AbortSignal,
): Promise<void> {
  const failed = (kind: string) => (error: unknown) =>
    logRarely(log, 'warn', { err: error }, `${kind} requeue failed; it is retried`);
  const pages = <P>(kind: string, requeue: (after: P | null) => Promise<P | null>) => {
    let next: P | null = null;
    return async (): Promise<void> => {
      try {
        next = await requeue(next);
      } catch (error) {
        failed(kind)(error);
      }
    };
  };
  let lastSearch = -Infinity;
  const take = (ids: string[]): Promise<void> => Promise.resolve(groups.take(ids, NO_REQUEST_IDS));
  const admissions = { sql, log, metrics, enqueue: take, ...limits };
  const revocations = { ...admissions, enqueue: (ids: string[]) => queue.addRevocations(ids) };
  const searches = [
    pages<PendingPlace>('admission', async (after) => {
      const isDue = performance.now() - lastSearch >= BACKLOG_INTERVAL_MS;
      if (!isDue && groups.waiting() >= MOST_IDS_PER_PAGE) return after;
      lastSearch = performance.now();
      return requeueStaleAdmissions(admissions, after);
    }),
    pages<PendingRevocation>('revocation', (after) =>
      isDown() ? Promise.resolve(after) : requeueStaleRevocations(revocations, after),
    ),
    chunks,
  ];
  const search = async (): Promise<void> => {
    if (await isAnythingPending(sql)) await Promise.all(searches.map((one) => one()));
  };
  await repeat(everyMs, signal, search, failed('admission'));
}

/** Takes all pending admissions. */
export async function takePending(sql: Db, groups: Pick<AdmissionGroups, 'take'>): Promise<void> {
  let after: PendingPlace | null = null;
  do {
    const page: PendingPlace[] = await pendingOlderThan(sql, 0, MOST_IDS_PER_PAGE, after);
    groups.take(
      page.map(({ proofId }) => proofId),
      NO_REQUEST_IDS,
    );
    after = nextPlace(page, MOST_IDS_PER_PAGE);
  } while (after !== null);
}

const MOST_IDS_PER_PAGE = 4_096;

export interface RequeueOptions {
  sql: Db;
  log: Logger;
  metrics?: AdmitMetrics | undefined;
  enqueue: (ids: string[]) => Promise<unknown>;
  /** Milliseconds that an item may wait before it is enqueued again. */
  olderThanMs: number;
  /** Ids per group or job. */
  groupSize: number;
}

/**
 * Takes a page of stale admissions, whose announcement was lost or whose group failed. Returns the
 * position of the next page; null after the last one.
 */
export async function requeueStaleAdmissions(
  { sql, log, metrics, enqueue, olderThanMs, groupSize }: RequeueOptions,
  after: PendingPlace | null = null,
): Promise<PendingPlace | null> {
  const limit = MOST_IDS_PER_PAGE;
  const stale = await pendingOlderThan(sql, olderThanMs, limit, after);
  metrics?.requeued('admissions', stale.length);
  const ids = stale.map(({ proofId }) => proofId);
  for (let start = 0; start < ids.length; start += groupSize) {
    await enqueue(ids.slice(start, start + groupSize));
  }
  if (ids.length > 0) {
    // The engine's log lines map these proof ids to request ids.
    const first = firstOf(ids, NO_REQUEST_IDS);
    logRarely(log, 'warn', { admissions: ids.length, first }, 'stale admissions requeued');
  }
  return nextPlace(stale, limit);
}

/** Requeues a page of stale revocations, as {@link requeueStaleAdmissions} does. A failing request does not block later pages. */
export async function requeueStaleRevocations(
  { sql, log, metrics, enqueue, olderThanMs, groupSize }: RequeueOptions,
  after: PendingRevocation | null = null,
): Promise<PendingRevocation | null> {
  const stale = await revocationsOlderThan(sql, olderThanMs, groupSize, after);
  metrics?.requeued('revocations', stale.length);
  if (stale.length > 0) {
    await enqueue(stale.map(({ requestId }) => requestId));
    logRarely(log, 'warn', { revocations: stale.length }, 'stale revocations requeued');
  }
  return nextPlace(stale, groupSize);
}

/** The position of the next page; null after the last one. */
export const nextPlace = <P>(page: P[], limit: number): P | null =>
  page.length < limit ? null : (page.at(-1) ?? null);
