import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { QueueConfig } from '../config.js';
import { logger, type Logger } from '../process/log.js';
import { type AdmitProcessor, isIds, JOB, type Opened, openEvents, openQueue, openWorker, type QueueName, readJob, UnrecoverableError } from './backend.js';
import { packRequestIds, type RequestIds } from '../http/request-ids.js';
import { withTimeout } from '../concurrency/promises.js';

export {
  assertMayOnlyReadQueues,
  BOARD_ROLE,
  BoardRoleError,
  grantQueueAccess,
  grantQueueReading,
  migrateQueues,
} from './schema.js';
export { openQueueToRead, QUEUES, type QueueToRead } from './backend.js';
export { MAX_IDS_PER_JOB } from './backend.js';

/** The queue did not answer in time, or refused. What was to be enqueued may still be processed. */
export class QueueUnavailableError extends Error {
  override name = 'QueueUnavailableError';
}

const READY_MS = 5_000;
const ANSWER_MS = 3_000;
const REOPEN_MS = 1_000;
const CLOSE_MS = 10_000;
const CLOSE_WORKER_MS = 20_000;
const LOG_EVERY_MS = 5_000;

type QueueLog = Pick<Logger, 'warn'>;

export interface QueueOptions {
  log?: QueueLog;
}

function inTime<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  const late = `${what} took longer than ${String(ms)} ms`;
  return withTimeout(promise, ms, () => new QueueUnavailableError(late));
}

/** A queue that is away says so many times a second; once in a while is enough to know. */
function throttleLog(log: QueueLog, what: string): (error: unknown) => void {
  let last = -Infinity;
  let more = 0;
  return (error) => {
    const now = performance.now();
    if (now - last < LOG_EVERY_MS) {
      more += 1;
      return;
    }
    log.warn({ err: error, unlogged: more }, `${what}: the queue reports an error`);
    last = now;
    more = 0;
  };
}

interface Closable {
  waitUntilReady(): Promise<unknown>;
  close(): Promise<void>;
}

/** Waits until it is connected; what cannot connect has nothing to finish and is dropped at once. */
async function connected<M extends Closable>(opened: Opened<M>): Promise<void> {
  try {
    await inTime(opened.member.waitUntilReady(), READY_MS, 'connecting to the queue');
  } catch (error) {
    opened.abandon();
    await shut(opened, CLOSE_MS);
    throw error;
  }
}

async function shut(opened: Opened<Closable>, ms: number): Promise<void> {
  try {
    await inTime(opened.member.close(), ms, 'closing the queue');
  } catch {
    // It is being left anyway; its connections are cut below.
  } finally {
    opened.abandon();
  }
}

/** What is in a queue: wake-ups, and not what the registry holds. */
export interface QueueState {
  jobs: Record<(typeof STATES)[number], number>;
  /** When the oldest job that waits was added, in epoch milliseconds of who added it. */
  oldestAt: number | null;
}

const STATES = ['waiting', 'active', 'delayed', 'failed'] as const;

interface QueueStats {
  stats(): Promise<QueueState>;
}

/** Wakes workers. It promises nothing: the registry knows what is pending, and the sweeper asks it. */
export interface AdmitQueue extends QueueStats {
  /**
   * Rejects within seconds when the queue is away; returns the job's id. `requests` names for each
   * id the request that brought it, for the worker's log lines.
   */
  add(proofIds: readonly string[], requests?: readonly string[]): Promise<string>;
  /** The same for revocations that were asked for. */
  addRevocations(revocationIds: readonly string[], requests?: readonly string[]): Promise<string>;
  /** Says that batches have come, by their ids without what stands in front: the registry has them. */
  addBatches(batchIds: readonly string[], requests?: readonly string[]): Promise<string>;
  /** Rejects when the queue is away. */
  ping(): Promise<void>;
  /** Jobs that no worker has taken yet. */
  depth(): Promise<number>;
  close(): Promise<void>;
}

/** Carries the turns of batches from whoever hands them out to whoever works them. */
export interface BatchQueue extends QueueStats {
  add(proofIds: readonly string[]): Promise<string>;
  /** Turns that no worker has taken yet. */
  depth(): Promise<number>;
  close(): Promise<void>;
}

type OpenQueue = ReturnType<typeof openQueue>;

export function openAdmitQueue(config: QueueConfig, options: QueueOptions = {}): AdmitQueue {
  const sender = openSender(config, 'admit', options);
  return {
    add: (proofIds, requests) => sender.add(JOB.admissions, proofIds, requests),
    addRevocations: (ids, requests) => sender.add(JOB.revocations, ids, requests),
    addBatches: (batchIds, requests) => sender.add(JOB.batches, batchIds, requests),
    ping: () => sender.ping(),
    depth: () => sender.depth(),
    stats: () => sender.stats(),
    close: () => sender.close(),
  };
}

export function openBatchQueue(config: QueueConfig, options: QueueOptions = {}): BatchQueue {
  const sender = openSender(config, 'batch', options);
  return {
    add: (proofIds) => sender.add(JOB.admissions, proofIds),
    depth: () => sender.depth(),
    stats: () => sender.stats(),
    close: () => sender.close(),
  };
}

interface Producer extends QueueStats {
  add(job: string, ids: readonly string[], requests?: readonly string[]): Promise<string>;
  ping(): Promise<void>;
  depth(): Promise<number>;
  close(): Promise<void>;
}

function openSender(config: QueueConfig, name: QueueName, options: QueueOptions): Producer {
  const onError = throttleLog(options.log ?? logger('queue'), 'enqueueing');
  let current: Promise<OpenQueue> | null = null;
  let closed = false;

  async function openOnce(): Promise<OpenQueue> {
    const opened = openQueue(config, name, onError);
    await connected(opened);
    return opened;
  }

  // BullMQ remembers a connection that failed at first for ever, so a failure here is forgotten:
  // the next call tries anew.
  function ready(): Promise<OpenQueue> {
    if (closed) return Promise.reject(new QueueUnavailableError('the queue has been closed'));
    if (current === null) {
      const opening = openOnce();
      current = opening;
      opening.catch(() => {
        if (current === opening) current = null;
      });
    }
    return current;
  }

  async function ask<T>(question: (queue: OpenQueue['member']) => Promise<T>): Promise<T> {
    try {
      return await inTime(
        ready().then(({ member }) => question(member)),
        ANSWER_MS,
        'the queue',
      );
    } catch (cause) {
      if (cause instanceof QueueUnavailableError) throw cause;
      throw new QueueUnavailableError('the queue cannot be reached', { cause });
    }
  }

  // The id is ours because making one is a right that the programs' database roles do not have.
  const add: Producer['add'] = (job, ids, requests) =>
    ask(async (queue) => {
      const jobId = randomUUID();
      const data = {
        ids: [...ids],
        ...(requests !== undefined && { requests: packRequestIds(requests) }),
      };
      await queue.add(job, data, { jobId });
      return jobId;
    });

  return {
    add,
    ping: async () => {
      await ask((queue) => queue.getWaitingCount());
    },
    depth: () => ask((queue) => queue.getWaitingCount()),
    stats: () =>
      ask(async (queue) => {
        const counts = await queue.getJobCounts(...STATES);
        const [oldest] = await queue.getWaiting(0, 0);
        const jobs = { waiting: 0, active: 0, delayed: 0, failed: 0 };
        for (const state of STATES) jobs[state] = counts[state] ?? 0;
        return { jobs, oldestAt: oldest?.timestamp ?? null };
      }),
    close: async () => {
      closed = true;
      const opened = await current?.catch(() => null);
      if (opened) await shut(opened, CLOSE_MS);
    },
  };
}

/** Something that runs in the background until it is closed. */
export interface Running {
  /** Settles when it runs for the first time; a queue that is away at the start is waited for. */
  ready: Promise<void>;
  /** Whether it does at the moment. */
  isRunning(): boolean;
  close(): Promise<void>;
}

type Runner = Opened<Closable & { run(): Promise<void> }>;

/** Keeps one open: a backend that cannot be reached at the start, or that gives up, is opened again. */
function keepRunning(
  open: () => Runner,
  report: (error: unknown) => void,
  closeMs: number,
): Running {
  const closing = new AbortController();
  let opening: Runner | null = null;
  let running: Runner | null = null;
  let firstReady: () => void = () => undefined;
  const ready = new Promise<void>((resolve) => {
    firstReady = resolve;
  });

  async function once(): Promise<void> {
    opening = open();
    try {
      await connected(opening);
      running = opening;
    } finally {
      opening = null;
    }
    const run = running.member.run();
    firstReady();
    try {
      await run;
    } finally {
      // While closing, whoever closes waits for the job at hand.
      if (!closing.signal.aborted) {
        const over = running;
        running = null;
        await shut(over, CLOSE_MS);
      }
    }
  }

  async function loop(): Promise<void> {
    while (!closing.signal.aborted) {
      await once().catch((error: unknown) => {
        if (!closing.signal.aborted) report(error);
      });
      await sleep(REOPEN_MS, undefined, { signal: closing.signal }).catch(() => undefined);
    }
  }

  const over = loop();
  return {
    ready,
    isRunning: () => running !== null && !closing.signal.aborted,
    close: async () => {
      closing.abort();
      opening?.abandon();
      if (running !== null) await shut(running, closeMs);
      await Promise.race([over, sleep(1_000, undefined, { ref: false })]);
    },
  };
}

/**
 * Calls `onSettled` when a worker is done with a job, for better or worse. A hint that now is a good
 * time to ask the registry: it can be late, missing or forged.
 */
export function openAdmitEvents(
  config: QueueConfig,
  onSettled: (jobId: string, ids?: string[]) => void,
  options: QueueOptions = {},
): Running {
  const report = throttleLog(options.log ?? logger('queue'), 'waiting for events');
  return keepRunning(
    () => {
      const opened = openEvents(config, report);
      opened.member.on('completed', ({ jobId, returnvalue }) => {
        const ids = idsFrom(returnvalue);
        if (ids === null) onSettled(jobId);
        else onSettled(jobId, ids);
      });
      opened.member.on('failed', ({ jobId }) => onSettled(jobId));
      return opened;
    },
    report,
    CLOSE_MS,
  );
}

/** The backends hand a result over in different wrappings. */
function idsFrom(returnvalue: unknown): string[] | null {
  return isIds(returnvalue) ? returnvalue : null;
}

export interface AdmitWorkerOptions extends QueueOptions {
  concurrency: number;
  /** Called with the ids of jobs that ask for revocations; without it they are left to the sweeper. */
  revocations?: Handler;
  /** Called when batches have come; without it their turns are handed out when they are looked for. */
  batches?: Handler;
}

/** What is done with the ids of a job; by which requests they came is for log lines alone. */
export type Handler = (ids: string[], requests: RequestIds) => Promise<void>;

/**
 * Calls `handler` with the ids of each job that asks for admissions. A job of another kind, or that
 * is not a plain list of ids, is set aside unread: the queue is open to whoever gets at it, and
 * proves nothing.
 */
export function openAdmitWorker(
  config: QueueConfig,
  handler: Handler,
  options: AdmitWorkerOptions,
): Running {
  const handlers: Handlers = {
    [JOB.admissions]: handler,
    [JOB.revocations]: options.revocations,
    [JOB.batches]: options.batches,
  };
  return openConsumer(config, 'admit', handlers, options);
}

/** The same for the turns of batches. */
export function openBatchWorker(
  config: QueueConfig,
  handler: Handler,
  options: QueueOptions & { concurrency: number },
): Running {
  return openConsumer(config, 'batch', { [JOB.admissions]: handler }, options);
}

type Handlers = Record<string, Handler | undefined>;

function openConsumer(
  config: QueueConfig,
  name: QueueName,
  handlers: Handlers,
  options: QueueOptions & { concurrency: number },
): Running {
  const report = throttleLog(options.log ?? logger('queue'), 'taking jobs');
  const processor: AdmitProcessor = async (job) => {
    const read = readJob(job.data);
    if (read === null) throw new UnrecoverableError('the job is not a list of ids');
    const handle = Object.hasOwn(handlers, job.name) ? handlers[job.name] : undefined;
    if (handle === undefined) throw new UnrecoverableError('there is no such kind of job');
    await handle(read.ids, read.requests);
    return read.ids;
  };
  return keepRunning(
    () => openWorker(config, name, processor, options.concurrency, report),
    report,
    CLOSE_WORKER_MS,
  );
}
