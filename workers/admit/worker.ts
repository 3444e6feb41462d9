import { setTimeout as sleep } from 'node:timers/promises';
import type { QueueConfig } from '#runtime/config';
import { openAdmitQueue, openAdmitWorker } from '#runtime/queues';
import type { AdmitContext } from './context.js';
import { processAdmissions } from './process.js';
import { sweep } from './sweep.js';

export interface WorkerOptions {
  /** Jobs in work at a time. Everything before the append lock runs beside each other. */
  concurrency: number;
  /** Milliseconds between sweeps. */
  sweepEveryMs: number;
  /** Milliseconds after which an admission without a proof is enqueued again. */
  sweepOlderThanMs: number;
}

export const WORKER_DEFAULTS: WorkerOptions = {
  concurrency: 4,
  sweepEveryMs: 1000,
  sweepOlderThanMs: 2000,
};

const SWEEP_GROUP = 256;

export interface AdmitWorker {
  /** Settles when the worker takes jobs. */
  ready: Promise<void>;
  /** Finishes what is in work and takes no more. */
  close(): Promise<void>;
}

/** Takes jobs from the queue, and sweeps what the queue forgot. */
export function startAdmitWorker(
  context: AdmitContext,
  queueConfig: QueueConfig,
  options: WorkerOptions = WORKER_DEFAULTS,
): AdmitWorker {
  const { log } = context;
  const worker = openAdmitWorker(queueConfig, (ids) => processAdmissions(context, ids), {
    concurrency: options.concurrency,
    log,
  });
  const queue = openAdmitQueue(queueConfig, { log });
  const stopping = new AbortController();
  const sweeping = sweepUntilStopped();

  async function sweepUntilStopped(): Promise<void> {
    while (!stopping.signal.aborted) {
      try {
        await sweep({
          sql: context.sql,
          log,
          enqueue: (ids) => queue.add(ids),
          olderThanMs: options.sweepOlderThanMs,
          groupSize: SWEEP_GROUP,
        });
      } catch (error) {
        log.warn({ err: error }, 'the sweep failed; the next one comes');
      }
      await sleep(options.sweepEveryMs, undefined, { signal: stopping.signal }).catch(() => null);
    }
  }

  return {
    ready: worker.ready,
    close: async () => {
      stopping.abort();
      await worker.close();
      await sweeping;
      await queue.close();
    },
  };
}
