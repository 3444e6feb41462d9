import { setTimeout as sleep } from 'node:timers/promises';
import type { RequestIds } from '#runtime/http/request-ids';
import type { Logger } from '#runtime/process/log';
import type { AdmitQueue } from '#runtime/queue/queues';
import type { Db } from '#sql/db/transaction';
import { type PendingRevocation, revocationsOlderThan } from '#sql/lifecycle/revocations';
import { type LifecycleContext, settleRevocations } from './settle-revocations.js';

export interface RevocationOptions {
  /** Milliseconds between sweeps. */
  sweepEveryMs: number;
  /** Milliseconds after which a revocation that is not in the log is enqueued again. */
  sweepOlderThanMs: number;
  /** Told of requests that had waited too long. */
  requeued?: (requests: number) => void;
}

const SWEEP_GROUP = 256;

export interface RevocationWorker {
  /** What a job of the queue asks for. */
  settle(revocationIds: string[], requests: RequestIds): Promise<void>;
  close(): Promise<void>;
}

/** Settles the revocations that jobs name, and sweeps those that the queue forgot. */
export function startRevocationWorker(
  context: LifecycleContext,
  queue: Pick<AdmitQueue, 'addRevocations'>,
  options: RevocationOptions,
): RevocationWorker {
  const { sql, log } = context;
  const stopping = new AbortController();
  const sweeping = sweepUntilStopped();

  async function sweepUntilStopped(): Promise<void> {
    let place: PendingRevocation | null = null;
    while (!stopping.signal.aborted) {
      try {
        const requeued = await requeueStaleRevocations(
          {
            sql,
            log,
            enqueue: (ids) => queue.addRevocations(ids),
            olderThanMs: options.sweepOlderThanMs,
            groupSize: SWEEP_GROUP,
            ...(options.requeued && { found: options.requeued }),
          },
          place,
        );
        place = requeued.next;
      } catch (error) {
        log.warn({ err: error }, 'the sweep of revocations failed; the next one comes');
      }
      await sleep(options.sweepEveryMs, undefined, { signal: stopping.signal }).catch(() => null);
    }
  }

  return {
    settle: async (ids, requests) => {
      const [first = ''] = ids;
      const about = {
        revocations: ids.length,
        revocation_id: first,
        request_id: requests.of(first),
      };
      try {
        await settleRevocations(context, ids);
        log.debug(about, 'revocations settled');
      } catch (error) {
        log.error(
          { err: error, ...about },
          'revocations cannot be settled; they are kept and tried again',
        );
        throw error;
      }
    },
    close: async () => {
      stopping.abort();
      await sweeping;
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
