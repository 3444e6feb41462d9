import { setTimeout as sleep } from 'node:timers/promises';
import type { RequestIds } from '#runtime/http/request-ids';
import type { Logger } from '#runtime/process/log';
import type { AdmitQueue } from '#runtime/queue/queues';
import type { Db } from '#sql/db/transaction';
import { type PendingRevocation, revocationsOlderThan } from '#sql/lifecycle/revocations';
import { type LifecycleContext, settleRevocations } from './settle-revocations.js';

export interface RevocationOptions {
  /** Milliseconds between searches for stale requests. */
  requeueEveryMs: number;
  /** Milliseconds after which a revocation that is not in the log is enqueued again. */
  staleAfterMs: number;
  /** Called with the number of stale requests. */
  requeued?: (requests: number) => void;
}

const REQUEUE_GROUP = 256;

export interface RevocationWorker {
  /** Processes one job of the queue. */
  settle(revocationIds: string[], requests: RequestIds): Promise<void>;
  close(): Promise<void>;
}

/** Commits revocations from the queue and requeues those that the queue lost. */
export function startRevocationWorker(
  context: LifecycleContext,
  queue: Pick<AdmitQueue, 'addRevocations'>,
  options: RevocationOptions,
): RevocationWorker {
  const { sql, log } = context;
  const stopping = new AbortController();
  const requeueing = requeueUntilStopped();

  async function requeueUntilStopped(): Promise<void> {
    let cursor: PendingRevocation | null = null;
    while (!stopping.signal.aborted) {
      try {
        const requeued = await requeueStaleRevocations(
          {
            sql,
            log,
            enqueue: (ids) => queue.addRevocations(ids),
            olderThanMs: options.staleAfterMs,
            groupSize: REQUEUE_GROUP,
            ...(options.requeued && { found: options.requeued }),
          },
          cursor,
        );
        cursor = requeued.next;
      } catch (error) {
        log.warn({ err: error }, 'revocation requeue failed; it is retried');
      }
      await sleep(options.requeueEveryMs, undefined, { signal: stopping.signal }).catch(() => null);
    }
  }

  return {
    settle: async (ids, requests) => {
      const [first = ''] = ids;
      const fields = {
        revocations: ids.length,
        revocation_id: first,
        request_id: requests.of(first),
      };
      try {
        await settleRevocations(context, ids);
        log.debug(fields, 'revocations committed');
      } catch (error) {
        log.error(
          { err: error, ...fields },
          'revocations cannot be committed; they are kept and retried',
        );
        throw error;
      }
    },
    close: async () => {
      stopping.abort();
      await requeueing;
    },
  };
}

export interface RevocationRequeueOptions {
  sql: Db;
  log: Logger;
  enqueue: (requestIds: string[]) => Promise<unknown>;
  /** Milliseconds that a request may wait before it is enqueued again. */
  olderThanMs: number;
  groupSize: number;
  /** Called with the number of stale requests, before they are enqueued. */
  found?: (count: number) => void;
}

/**
 * Requeues stale revocation requests. One call handles one page and returns the cursor of the next
 * one, or null after the last page, so a request that cannot be committed never blocks others.
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
    log.warn({ revocations: waiting.length }, 'stale revocations requeued');
  }
  return {
    enqueued: waiting.length,
    next: waiting.length < groupSize ? null : (waiting.at(-1) ?? null),
  };
}
