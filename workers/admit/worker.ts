import type { QueueConfig } from '#runtime/config';
import type { KeyStatus } from '#protocol/key-state';
import { healthCheck, type Readiness } from '#runtime/ops/health';
import {
  openAdmitQueue,
  openAdmitWorker,
  openBatchQueue,
  openBatchWorker,
  type QueueState,
} from '#runtime/queue/queues';
import type { RequestIds } from '#runtime/http/request-ids';
import { TaskWatchdog, type HungError } from '#runtime/process/watchdog';
import { type AdmitContext, signingKeyState } from './context.js';
import { startChunkDispatcher } from './batches.js';
import { groupJobs } from './group-jobs.js';
import { keepRequeueing } from './requeue.js';
import { processAdmissions } from './process.js';
import { startRevocationWorker } from '../lifecycle/worker.js';
import { firstOf } from './log-settled.js';

export interface WorkerOptions {
  /** Jobs taken at a time: those that wait together are settled together. */
  jobsAtOnce: number;
  /** Groups of them in work at a time. Everything before the append lock runs beside each other. */
  groupsAtOnce: number;
  /** Of batches beside them. Few: what comes alone waits for the append lock behind each of these. */
  batchConcurrency: number;
  /** Milliseconds between sweeps. */
  sweepEveryMs: number;
  /** Milliseconds after which an admission without a proof is enqueued again. */
  sweepOlderThanMs: number;
  /** Milliseconds after which work of a batch that was handed out and is not done comes again. */
  renewTurnsAfterMs: number;
  /** Milliseconds in which a group, or what came with a job of another kind, has to be through. */
  stallTimeoutMs: number;
}

export const WORKER_DEFAULTS: WorkerOptions = {
  jobsAtOnce: 32,
  groupsAtOnce: 2,
  batchConcurrency: 1,
  sweepEveryMs: 1000,
  sweepOlderThanMs: 2000,
  renewTurnsAfterMs: 5000,
  // A group is a dozen statements, each of which the database ends after 30 s; the limit leaves room
  // for the part of a batch that goes item by item.
  stallTimeoutMs: 600_000,
};

/** A group's size; what waits beyond it is the next group. */
const IDS_AT_ONCE = 256;
const REPORT_EVERY_MS = 5_000;

export interface AdmitWorker {
  /** Settles when the worker takes jobs. */
  ready: Promise<void>;
  /** What is in the queues. */
  queues(): Promise<Record<'admit' | 'batch', QueueState>>;
  /** Whether it can settle what was taken in, and what is missing if not. */
  readiness(): Promise<Readiness>;
  /** Finishes what is in work and takes no more. */
  close(): Promise<void>;
}

/**
 * Takes jobs from the queue, and sweeps what the queue forgot. `onHung` is called when something that
 * was taken neither ends nor fails: as long as this process runs it renews its hold on that job, and
 * nobody else is given it.
 */
export function startAdmitWorker(
  context: AdmitContext,
  queueConfig: QueueConfig,
  options: WorkerOptions = WORKER_DEFAULTS,
  onHung: (error: HungError) => void = () => undefined,
): AdmitWorker {
  const { log } = context;
  const ends = new TaskWatchdog({
    what: 'the settling of a job',
    limitMs: options.stallTimeoutMs,
    onHung,
  });
  let reported = -Infinity;
  // The queue only counts failures; why they fail is said here, once in a while.
  const report = (error: unknown, ids: string[], requests: RequestIds): void => {
    const now = performance.now();
    if (now - reported < REPORT_EVERY_MS) return;
    reported = now;
    log.error(
      { err: error, admissions: ids.length, first: firstOf(ids, requests) },
      'admissions cannot be settled; they are kept and tried again',
    );
  };
  const settle = async (ids: string[], requests: RequestIds): Promise<void> => {
    try {
      await ends.watch(() => processAdmissions(context, ids, requests));
    } catch (error) {
      report(error, ids, requests);
      throw error;
    }
  };
  const queue = openAdmitQueue(queueConfig, { log });
  const revocations = startRevocationWorker(context, queue, {
    ...options,
    requeued: (requests) => context.metrics?.requeued('revocations', requests),
  });
  const batchQueue = openBatchQueue(queueConfig, { log });
  const turns = startChunkDispatcher({
    sql: context.sql,
    log,
    queue: batchQueue,
    ahead: options.batchConcurrency + 1,
    sweepEveryMs: options.sweepEveryMs,
    renewAfterMs: options.renewTurnsAfterMs,
    requeued: (turns) => context.metrics?.requeued('batches', turns),
  });
  const batchWorker = openBatchWorker(
    queueConfig,
    (ids, requests) => {
      // There is room for the next turn now, and no need to wait for the end of this one.
      turns.wake();
      return settle(ids, requests);
    },
    { concurrency: options.batchConcurrency, log },
  );
  const settleTogether = groupJobs({
    groupsAtOnce: options.groupsAtOnce,
    idsAtOnce: IDS_AT_ONCE,
    settle,
  });
  const worker = openAdmitWorker(queueConfig, settleTogether, {
    concurrency: options.jobsAtOnce,
    log,
    revocations: (ids, requests) => ends.watch(() => revocations.settle(ids, requests)),
    batches: (ids, requests) => {
      for (const id of ids) {
        log.debug({ batch_id: `batch_${id}`, request_id: requests.of(id) }, 'a batch has come');
      }
      turns.wake();
      return Promise.resolve();
    },
  });
  const stopping = new AbortController();
  // Not known while it is asked for: what was true before may be no more.
  let signingKey: KeyStatus | null = null;
  const database = healthCheck(async () => {
    signingKey = null;
    signingKey = await signingKeyState(context.sql, context.keyId);
  });
  const reachesQueue = healthCheck(() => queue.ping());
  const sweeping = keepRequeueing(
    context,
    queue,
    {
      everyMs: options.sweepEveryMs,
      olderThanMs: options.sweepOlderThanMs,
      groupSize: IDS_AT_ONCE,
    },
    stopping.signal,
  );

  async function readiness(): Promise<Readiness> {
    const [ofDatabase, ofQueue] = await Promise.all([database(), reachesQueue()]);
    const jobs = worker.isRunning() && batchWorker.isRunning() ? 'up' : 'down';
    // Without the queue nothing reaches a worker, the sweeper’s jobs included.
    // With a key that does not count, it takes jobs and settles none of them.
    const ready =
      ofDatabase === 'up' && ofQueue === 'up' && jobs === 'up' && signingKey === 'active';
    return {
      ready,
      says: {
        status: ready ? 'ready' : 'unavailable',
        dependencies: { database: ofDatabase, queue: ofQueue },
        jobs,
        ...(signingKey !== null && { signing_key: signingKey }),
      },
    };
  }

  return {
    queues: async () => ({ admit: await queue.stats(), batch: await batchQueue.stats() }),
    readiness,
    ready: Promise.all([worker.ready, batchWorker.ready]).then(() => undefined),
    close: async () => {
      stopping.abort();
      await Promise.all([worker.close(), batchWorker.close()]);
      ends.stop();
      await sweeping;
      await turns.close();
      await batchQueue.close();
      await revocations.close();
      await queue.close();
    },
  };
}
