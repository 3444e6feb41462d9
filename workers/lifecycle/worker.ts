import { setTimeout as sleep } from 'node:timers/promises';
import type { AdmitQueue } from '#runtime/queues';
import type { RequestIds } from '#runtime/request-ids';
import type { PendingRevocation } from '#sql/revocations';
import type { LifecycleContext } from './context.js';
import { settleRevocations } from './settle-revocations.js';
import { requeueStaleRevocations } from './sweep.js';

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
