import { createPostgresBackend, createRedisBackend, type PostgresConnectionOptions, type Processor, Queue, QueueEvents, type QueueOptions, UnrecoverableError, Worker, type WorkerOptions } from 'bullmq';
import pg from 'pg';
import { isProofId } from '#protocol/ids';
import type { QueueConfig } from '../config.js';
import { type RequestIds, unpackRequestIds } from '../http/request-ids.js';
import { openRedis, type RedisClient } from './redis.js';

export { UnrecoverableError };

/**
 * The queues' names; on Redis their keys share the hash tag of `PREFIX`, as a cluster demands. Work
 * of batches has a queue of its own, so that what comes alone never stands behind it.
 */
export const QUEUES = ['admit', 'batch'] as const;
export type QueueName = (typeof QUEUES)[number];
const PREFIX = '{svc}';
/** BullMQ's tables in the database. */
export const SCHEMA = 'bullmq';

export interface AdmitData {
  ids: string[];
  /** By which requests they came, in one string; for log lines alone. */
  requests?: string;
}

/** What a job's ids are ids of, by the job's name. */
export const JOB = { admissions: 'admit', revocations: 'revoke', batches: 'batches' } as const;

export type AdmitProcessor = Processor<AdmitData, string[]>;

/** The part of BullMQ's Queue, QueueEvents or Worker that opening and closing need. */
interface Member {
  waitUntilReady(): Promise<unknown>;
  close(): Promise<void>;
  on(event: 'error', listener: (error: Error) => void): unknown;
}

/** One member on one backend. */
export interface Opened<M> {
  member: M;
  /** Frees the connections at once, whatever the member is doing. */
  abandon(): void;
}

export type OnError = (error: Error) => void;

/** Jobs in work need a connection only while they are taken and when they are done. */
const MOST_MOVING_JOBS = 4;

/** An hour's worth of missed consumers is no loss: events are hints. */
const EVENTS_KEPT = 1_000;
const FAILED_KEPT = 100;

const jobOptions = {
  removeOnComplete: true,
  removeOnFail: { count: FAILED_KEPT },
  attempts: 5,
  backoff: { type: 'exponential', delay: 250 },
};

const queueOptions = {
  defaultJobOptions: jobOptions,
  streams: { events: { maxLen: EVENTS_KEPT } },
};

/**
 * A worker that is killed lets go of its jobs within ten seconds, and another takes them within
 * five more. How often that happens to a job says nothing about the job.
 */
const workerOptions = {
  autorun: false,
  lockDuration: 10_000,
  stalledInterval: 5_000,
  maxStalledCount: 1_000_000,
  runRetryDelay: 1_000,
};

/**
 * On Postgres the wake-ups of concurrent commits are merged, and the last one can be lost; a
 * consumer must look by itself, at a short interval.
 */
const POSTGRES_EVENTS_WAIT_MS = 100;
const POSTGRES_IDLE_WAIT_S = 0.2;

/**
 * When BullMQ opens, it takes a connection out of its pool to look at its tables, and then nobody hears
 * of an error of it: one that is lost at that moment would end the process. What was asked of it fails
 * all the same, and there it is handled.
 */
class QueueClient extends pg.Client {
  constructor(options?: pg.ClientConfig) {
    super(options);
    this.on('error', () => undefined);
  }
}

function postgresConnection(config: QueueConfig, max: number): PostgresConnectionOptions {
  return {
    connectionString: config.databaseUrl,
    schema: SCHEMA,
    Client: QueueClient,
    max,
    application_name: 'svc-queue',
    connectionTimeoutMillis: 3_000,
    query_timeout: 10_000,
    keepAlive: true,
  };
}

function open<M extends Member>(
  member: M,
  onError: OnError,
  client: RedisClient | null,
): Opened<M> {
  member.on('error', onError);
  return { member, abandon: () => client?.disconnect() };
}

export function openQueue(
  config: QueueConfig,
  name: QueueName,
  onError: OnError,
): Opened<
  Pick<Queue<AdmitData, string[]>, 'add' | 'getJobCounts' | 'getWaiting' | 'getWaitingCount'> &
    Member
> {
  if (config.redisUrl === null) {
    const options = { ...queueOptions, connection: postgresConnection(config, 3) };
    return open(new Queue(name, options, createPostgresBackend), onError, null);
  }
  const client = openRedis(config.redisUrl, { whenAway: 'fail_fast', onError });
  const options: QueueOptions = { ...queueOptions, connection: client, prefix: PREFIX };
  return open(new Queue(name, options, createRedisBackend), onError, client);
}

export type QueueToRead = Member & Pick<Queue, 'name' | 'getWaitingCount'>;

/**
 * For somebody who looks at jobs and never adds, takes or changes one: opening it writes nothing
 * either, so that a database role which may only read is enough.
 */
export function openQueueToRead(
  config: QueueConfig,
  name: QueueName,
  onError: OnError,
): Opened<QueueToRead> {
  if (config.redisUrl === null) {
    const connection = postgresConnection(config, 2);
    const queue = new Queue(name, { connection, skipMetasUpdate: true }, createPostgresBackend);
    return open(queue, onError, null);
  }
  const client = openRedis(config.redisUrl, { whenAway: 'fail_fast', onError });
  const options: QueueOptions = { connection: client, prefix: PREFIX, skipMetasUpdate: true };
  return open(new Queue(name, options, createRedisBackend), onError, client);
}

export interface Events extends Member {
  run(): Promise<void>;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(
    event: 'completed',
    listener: (args: { jobId: string; returnvalue: unknown }) => void,
  ): unknown;
  on(event: 'failed', listener: (args: { jobId: string }) => void): unknown;
}

/**
 * Reads from the oldest event kept: "from now on" is decided anew at every read until a first event
 * has come, so what happens in between would be missed. Old news do no harm.
 */
const OLDEST_EVENT = '0';

/** Of admissions that came alone: nobody waits for those of a batch. */
export function openEvents(config: QueueConfig, onError: OnError): Opened<Events> {
  const name: QueueName = 'admit';
  if (config.redisUrl === null) {
    const connection = postgresConnection(config, 2);
    const options = {
      connection,
      autorun: false,
      lastEventId: OLDEST_EVENT,
      blockingTimeout: POSTGRES_EVENTS_WAIT_MS,
    };
    return open(new QueueEvents(name, options, createPostgresBackend), onError, null);
  }
  const client = openRedis(config.redisUrl, { whenAway: 'wait', onError });
  const options = {
    connection: client,
    autorun: false,
    lastEventId: OLDEST_EVENT,
    prefix: PREFIX,
  };
  return open(new QueueEvents(name, options, createRedisBackend), onError, client);
}

export function openWorker(
  config: QueueConfig,
  name: QueueName,
  processor: AdmitProcessor,
  concurrency: number,
  onError: OnError,
): Opened<Member & { run(): Promise<void> }> {
  if (config.redisUrl === null) {
    const connection = postgresConnection(config, Math.min(concurrency, MOST_MOVING_JOBS) + 2);
    const options = {
      ...workerOptions,
      connection,
      concurrency,
      drainDelay: POSTGRES_IDLE_WAIT_S,
    };
    return open(new Worker(name, processor, options, createPostgresBackend), onError, null);
  }
  const client = openRedis(config.redisUrl, { whenAway: 'wait', onError });
  const options: WorkerOptions = {
    ...workerOptions,
    connection: client,
    concurrency,
    prefix: PREFIX,
  };
  return open(new Worker(name, processor, options, createRedisBackend), onError, client);
}

/** The most ids that a job may carry; a job with more did not come from us. */
export const MAX_IDS_PER_JOB = 1_000;

export function isIds(value: unknown): value is string[] {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.length <= MAX_IDS_PER_JOB &&
    value.every((id) => typeof id === 'string' && isProofId(id))
  );
}

/**
 * What a job carries; null when it is none of ours. Whoever gets at the queue can put any JSON
 * there, `null` included, and one that made this throw would be tried again and again.
 */
export function readJob(data: unknown): { ids: string[]; requests: RequestIds } | null {
  if (typeof data !== 'object' || data === null) return null;
  const { ids, requests } = data as { ids?: unknown; requests?: unknown };
  return isIds(ids) ? { ids, requests: unpackRequestIds(requests, ids) } : null;
}
