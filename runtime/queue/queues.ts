import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { UnrecoverableError } from 'bullmq';
import type { QueueConfig } from '../config.js';
import { logger, logRarely, type Logger } from '../process/log.js';
import {
  type AdmitProcessor,
  JOB,
  type JobKind,
  type Member,
  type Opened,
  type OpenQueue,
  openQueue,
  openWorker,
  type QueueName,
  readJob,
} from './backend.js';
import { packRequestIds, type RequestIds } from '../http/request-ids.js';
import { repeat, withTimeout } from '../concurrency.js';

/** The queue timed out or failed. The job may have been enqueued all the same. */
export class QueueUnavailableError extends Error {}

const READY_MS = 5_000;
const ANSWER_MS = 3_000;
const REOPEN_MS = 1_000;
const CLOSE_MS = 10_000;
const CLOSE_WORKER_MS = 20_000;

type QueueLog = Pick<Logger, 'warn'>;

export interface QueueOptions {
  log?: QueueLog;
}

function inTime<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  const late = `${what} took longer than ${String(ms)} ms`;
  return withTimeout(promise, ms, () => new QueueUnavailableError(late));
}

const logTo =
  (log: QueueLog, what: string) =>
  (error: unknown): void =>
    logRarely(log, 'warn', { err: error }, `${what}: queue error`);

/** Waits for the connection; drops a client that cannot connect, because it has no work to finish. */
async function connected(opened: Opened<Member>): Promise<void> {
  try {
    await inTime(opened.member.waitUntilReady(), READY_MS, 'connecting to the queue');
  } catch (error) {
    opened.abandon();
    await shut(opened, CLOSE_MS);
    throw error;
  }
}

async function shut(opened: Opened<Member>, ms: number): Promise<void> {
  try {
    await inTime(opened.close(), ms, 'closing the queue');
  } catch {
    // Ignores the failure, because `abandon` closes the connections.
  } finally {
    opened.abandon();
  }
}

/** Removes a pause and limits. No program sets them: another process with access to the queue did, to delay work. */
async function removeLimits(queue: OpenQueue['member']): Promise<void> {
  await queue.resume();
  await queue.removeGlobalConcurrency();
  await queue.removeGlobalRateLimit();
  await queue.removeRateLimitKey();
}

/** Jobs in a queue. Jobs are wake-ups; the registry holds the admissions. */
export interface QueueState {
  jobs: Record<(typeof STATES)[number], number>;
  /** When the oldest waiting job was added, in epoch milliseconds by the producer's clock. */
  oldestAt: number | null;
}

const STATES = ['waiting', 'active', 'delayed', 'failed'] as const;

/**
 * Adds a job; returns its id. Rejects within seconds when the queue is unreachable. `requests` has the
 * request id of each id, for the worker's log lines. Delivery is not guaranteed: pending work is in the
 * registry, and stale work is requeued.
 */
type Add = (ids: readonly string[], requests?: readonly string[]) => Promise<string>;

export type AdmitQueue = ReturnType<typeof openAdmitQueue>;
export type BatchQueue = ReturnType<typeof openBatchQueue>;

/** The queue from engines to workers. A PostgreSQL notification, not a job, announces single admissions. */
export function openAdmitQueue(config: QueueConfig, options: QueueOptions = {}) {
  const { add, ...queue } = openProducer(config, 'admit', options);
  // `addBatches` announces new batches, by their ids without prefix.
  return { ...queue, addRevocations: add(JOB.revocations), addBatches: add(JOB.batches) };
}

/** The queue of batch work. Each job has the ids of leased chunks. */
export function openBatchQueue(config: QueueConfig, options: QueueOptions = {}) {
  const { add, ...queue } = openProducer(config, 'batch', options);
  return { ...queue, addChunks: add(JOB.chunks) };
}

function openProducer(config: QueueConfig, name: QueueName, options: QueueOptions) {
  const onError = logTo(options.log ?? logger('queue'), 'enqueueing');
  let current: Promise<OpenQueue> | null = null;
  let closed = false;

  async function openOnce(): Promise<OpenQueue> {
    const opened = openQueue(config, name, onError);
    try {
      await connected(opened);
      await inTime(removeLimits(opened.member), ANSWER_MS, 'opening the queue');
      return opened;
    } catch (error) {
      // BullMQ caches a failed first connection forever, so the next call opens another client.
      current = null;
      opened.abandon();
      throw error;
    }
  }

  function ready(): Promise<OpenQueue> {
    if (closed) return Promise.reject(new QueueUnavailableError('the queue client is closed'));
    return (current ??= openOnce());
  }

  async function ask<T>(
    question: (queue: OpenQueue['member'], probe: OpenQueue['probe']) => Promise<T>,
  ): Promise<T> {
    try {
      return await inTime(
        ready().then(({ member, probe }) => question(member, probe)),
        ANSWER_MS,
        'the queue',
      );
    } catch (cause) {
      if (cause instanceof QueueUnavailableError) throw cause;
      throw new QueueUnavailableError('the queue is unreachable', { cause });
    }
  }

  const add =
    (job: string): Add =>
    (ids, requests) =>
      ask(async (queue) => {
        // Generated here: BullMQ's own ids need a privilege that the programs' roles lack.
        const jobId = randomUUID();
        const packed = requests !== undefined && { requests: packRequestIds(requests) };
        await queue.add(job, { ids: [...ids], ...packed }, { jobId });
        return jobId;
      });
  const depth = (): Promise<number> => ask((queue) => queue.getWaitingCount());

  return {
    add,
    /** Resumes a paused queue. Rejects when the queue is unreachable or takes no jobs. */
    ping: (): Promise<void> =>
      ask(async (queue, probe) => {
        const [isPaused] = await Promise.all([queue.isPaused(), queue.getWaitingCount(), probe()]);
        if (isPaused) await queue.resume();
      }),
    /** Jobs that no worker has taken yet. */
    depth,
    stats: () =>
      ask(async (queue): Promise<QueueState> => {
        const counts = await queue.getJobCounts(...STATES);
        const [oldest] = await queue.getWaiting(0, 0);
        const jobs = { waiting: 0, active: 0, delayed: 0, failed: 0 };
        for (const state of STATES) jobs[state] = counts[state] ?? 0;
        return { jobs, oldestAt: oldest?.timestamp ?? null };
      }),
    close: async (): Promise<void> => {
      closed = true;
      const opened = await current?.catch(() => null);
      if (opened) await shut(opened, CLOSE_MS);
    },
  };
}

type Runner = Opened<Member & { run(): Promise<void> }>;

/** Keeps a client running: opens it again after a failure, until the backend is reachable. */
function keepRunning(open: () => Runner, report: (error: unknown) => void) {
  const closing = new AbortController();
  let opening: Runner | null = null;
  let running: Runner | null = null;
  let firstReady: () => void = () => undefined;
  const ready = new Promise<void>((resolve) => {
    firstReady = resolve;
  });

  async function once(): Promise<void> {
    const client = open();
    opening = client;
    try {
      await connected(client);
      // On an ended pool, BullMQ's loop would keep the process busy for ever.
      if (closing.signal.aborted) return await shut(client, CLOSE_MS);
      running = client;
    } finally {
      opening = null;
    }
    const run = client.member.run();
    firstReady();
    try {
      await run;
    } finally {
      // Keeps the client while closing, because `close` waits for the client's current job.
      if (!closing.signal.aborted) {
        running = null;
        await shut(client, CLOSE_MS);
      }
    }
  }

  const ended = repeat(REOPEN_MS, closing.signal, once, (error) => {
    if (!closing.signal.aborted) report(error);
  });
  return {
    /** Resolves when the task first runs, which an unreachable queue delays, or when it is closed. */
    ready,
    isRunning: () => running !== null && !closing.signal.aborted,
    close: async (): Promise<void> => {
      closing.abort();
      firstReady();
      opening?.abandon();
      if (running !== null) await shut(running, CLOSE_WORKER_MS);
      await Promise.race([ended, sleep(1_000, undefined, { ref: false })]);
    },
  };
}

/** `requests` is only for log lines. */
export type Handler = (ids: string[], requests: RequestIds) => Promise<void>;

/**
 * Calls the handler of each job's kind with its ids. Jobs of unknown kind or shape are rejected
 * unread: the queue is untrusted and proves nothing. The requeue of stale items finds the items of a rejected job.
 */
export function openConsumer(
  config: QueueConfig,
  name: QueueName,
  handlers: Partial<Record<JobKind, Handler>>,
  options: QueueOptions & { concurrency: number },
) {
  const report = logTo(options.log ?? logger('queue'), 'job consumer');
  const processor: AdmitProcessor = async (job) => {
    const read = readJob(job.data);
    if (read === null) throw new UnrecoverableError('the job is not a list of ids');
    const kind = (Object.keys(JOB) as JobKind[]).find((one) => JOB[one] === job.name);
    const handle = kind && handlers[kind];
    if (handle === undefined) throw new UnrecoverableError('unknown kind of job');
    await handle(read.ids, read.requests);
  };
  return keepRunning(
    () => openWorker(config, name, processor, options.concurrency, report),
    report,
  );
}
