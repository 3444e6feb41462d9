import type { QueueConfig } from '#runtime/config';
import type { KeyStatus } from '#protocol/keys';
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
import { processAdmissions } from './process.js';
import { processRevocations } from '../lifecycle/revocations.js';
import { keepRequeueing } from '../requeue.js';
import { firstOf } from './log-outcomes.js';

export interface WorkerOptions {
  /** Jobs taken concurrently; waiting jobs are grouped. */
  jobsAtOnce: number;
  /** Groups processed concurrently, up to the append lock. */
  groupsAtOnce: number;
  /** Batch chunks processed concurrently. Keep it low: single admissions wait behind each of them. */
  batchConcurrency: number;
  /** Milliseconds between searches for stale admissions. */
  requeueEveryMs: number;
  /** Milliseconds after which an admission without a proof is enqueued again. */
  staleAfterMs: number;
  /** Lease of a batch chunk, in milliseconds; an unfinished chunk is requeued afterwards. */
  chunkLeaseMs: number;
  /** Milliseconds after which an unfinished group or revocation job ends the process. */
  stallTimeoutMs: number;
}

export const WORKER_DEFAULTS: WorkerOptions = {
  jobsAtOnce: 32,
  groupsAtOnce: 2,
  batchConcurrency: 1,
  requeueEveryMs: 1000,
  staleAfterMs: 2000,
  chunkLeaseMs: 5000,
  // A group is a dozen statements with a timeout of 30 s each; the limit leaves room for a batch
  // chunk whose items are retried one by one.
  stallTimeoutMs: 600_000,
};

/** Largest group. */
const IDS_AT_ONCE = 256;
const REPORT_EVERY_MS = 5_000;

export interface AdmitWorker {
  /** Resolves when the worker takes jobs. */
  ready: Promise<void>;
  /** Depth and age of the queues. */
  queues(): Promise<Record<'admit' | 'batch', QueueState>>;
  /** Ready when it can commit admissions. */
  readiness(): Promise<Readiness>;
  /** Finishes the current jobs and takes no more. */
  close(): Promise<void>;
}

/**
 * Processes jobs from the queue and requeues those that the queue lost. `onHung` is called when a job
 * neither ends nor fails: while this process runs it renews its lock on that job, so no other worker
 * gets it. It throws by default, which ends the program.
 */
export function startAdmitWorker(
  context: AdmitContext,
  queueConfig: QueueConfig,
  options: WorkerOptions = WORKER_DEFAULTS,
  onHung: (error: HungError) => void = (error) => {
    throw error;
  },
): AdmitWorker {
  const { log } = context;
  const watchdog = new TaskWatchdog({
    what: 'a worker job',
    limitMs: options.stallTimeoutMs,
    onHung,
  });
  let reportedAt = -Infinity;
  const processGroup = async (ids: string[], requests: RequestIds): Promise<void> => {
    try {
      await watchdog.watch(() => processAdmissions(context, ids, requests));
    } catch (error) {
      // The queue only counts failures; this log line has the cause, at most once per interval.
      if (performance.now() - reportedAt >= REPORT_EVERY_MS) {
        reportedAt = performance.now();
        log.error(
          { err: error, admissions: ids.length, first: firstOf(ids, requests) },
          'admissions cannot be committed; they are kept and retried',
        );
      }
      throw error;
    }
  };
  const queue = openAdmitQueue(queueConfig, { log });
  const batchQueue = openBatchQueue(queueConfig, { log });
  const dispatcher = startChunkDispatcher({
    sql: context.sql,
    log,
    queue: batchQueue,
    ahead: options.batchConcurrency + 1,
    requeueEveryMs: options.requeueEveryMs,
    chunkLeaseMs: options.chunkLeaseMs,
    requeued: (chunks) => context.metrics?.requeued('batches', chunks),
  });
  const batchWorker = openBatchWorker(
    queueConfig,
    (ids, requests) => {
      // The queue has room for the next chunk before this one ends.
      dispatcher.wake();
      return processGroup(ids, requests);
    },
    { concurrency: options.batchConcurrency, log },
  );
  const processJob = groupJobs({
    groupsAtOnce: options.groupsAtOnce,
    idsAtOnce: IDS_AT_ONCE,
    process: processGroup,
  });
  const worker = openAdmitWorker(queueConfig, processJob, {
    concurrency: options.jobsAtOnce,
    log,
    revocations: (ids, requests) =>
      watchdog.watch(() => processRevocations(context, ids, requests)),
    batches: (ids, requests) => {
      for (const id of ids) {
        log.debug({ batch_id: `batch_${id}`, request_id: requests.of(id) }, 'batch received');
      }
      dispatcher.wake();
      return Promise.resolve();
    },
  });
  const stopping = new AbortController();
  // Null during the check: the previous state may be outdated.
  let signingKey: KeyStatus | null = null;
  const database = healthCheck(async () => {
    signingKey = null;
    signingKey = await signingKeyState(context.sql, context.keyId);
  });
  const reachesQueue = healthCheck(() => queue.ping());
  const requeueing = keepRequeueing(
    context,
    queue,
    {
      everyMs: options.requeueEveryMs,
      olderThanMs: options.staleAfterMs,
      groupSize: IDS_AT_ONCE,
    },
    stopping.signal,
  );

  async function readiness(): Promise<Readiness> {
    const [databaseState, queueState] = await Promise.all([database(), reachesQueue()]);
    const jobs = worker.isRunning() && batchWorker.isRunning() ? 'up' : 'down';
    // Without the queue no job reaches a worker, requeued ones included.
    // With an inactive key it takes jobs and commits none.
    const ready =
      databaseState === 'up' && queueState === 'up' && jobs === 'up' && signingKey === 'active';
    return {
      ready,
      details: {
        status: ready ? 'ready' : 'unavailable',
        dependencies: { database: databaseState, queue: queueState },
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
      watchdog.stop();
      await requeueing;
      await dispatcher.close();
      await batchQueue.close();
      await queue.close();
    },
  };
}
