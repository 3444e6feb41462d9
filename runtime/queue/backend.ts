import {
  createPostgresBackend,
  createRedisBackend,
  type PostgresConnectionOptions,
  type Processor,
  Queue,
  QueueEvents,
  type QueueOptions,
  UnrecoverableError,
  Worker,
  type WorkerOptions,
} from 'bullmq';
import pg from 'pg';
import { isProofId } from '#protocol/ids';
import type { QueueConfig } from '../config.js';
import { type RequestIds, unpackRequestIds } from '../http/request-ids.js';
import { openRedis, type RedisClient } from './redis.js';

export { UnrecoverableError };

/**
 * Queue names; on Redis their keys share the hash tag of `PREFIX`, as a cluster requires. Batch
 * work has its own queue, so that single admissions never wait behind it.
 */
export const QUEUES = ['admit', 'batch'] as const;
export type QueueName = (typeof QUEUES)[number];
const PREFIX = '{svc}';
/** BullMQ's tables in the database. */
export const SCHEMA = 'bullmq';

export interface AdmitData {
  ids: string[];
  /** Packed request ids, only for log lines. */
  requests?: string;
}

/** Job names, by the kind of ids that the job carries. */
export const JOB = { admissions: 'admit', revocations: 'revoke', batches: 'batches' } as const;

export type AdmitProcessor = Processor<AdmitData, string[]>;

/** The members of BullMQ's Queue, QueueEvents or Worker that opening and closing need. */
interface Member {
  waitUntilReady(): Promise<unknown>;
  close(): Promise<void>;
  on(event: 'error', listener: (error: Error) => void): unknown;
}

/** A queue client on one backend. */
export interface Opened<M> {
  member: M;
  /** Frees the connections immediately, whatever the client is doing. */
  abandon(): void;
}

export type OnError = (error: Error) => void;

/** A job needs a connection only while it is fetched and completed. */
const MOST_MOVING_JOBS = 4;

/** Consumers that are away for an hour may miss events, which are only hints. */
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
 * Another worker takes the jobs of a killed worker within fifteen seconds. Stalled counts are not
 * limited: a stall is not the job's fault.
 */
const workerOptions = {
  autorun: false,
  lockDuration: 10_000,
  stalledInterval: 5_000,
  maxStalledCount: 1_000_000,
  runRetryDelay: 1_000,
};

/**
 * On Postgres, concurrent notifications are merged and the last one can be lost, so consumers must
 * also poll at a short interval.
 */
const POSTGRES_EVENTS_WAIT_MS = 100;
const POSTGRES_IDLE_WAIT_S = 0.2;

/**
 * While opening, BullMQ uses a pool connection that has no error listener: losing it at that moment
 * would end the process. The query itself still fails and is handled there.
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

/** A read-only queue client: opening it writes nothing, so a read-only database role is enough. */
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
 * Reads from the oldest event kept: BullMQ resolves "from now on" at every read until a first event
 * arrives, which would miss those in between. Old events are harmless.
 */
const OLDEST_EVENT = '0';

/** Events of single admissions only: no caller waits for those of a batch. */
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

/** Limit of ids per job; a larger job is forged. */
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
 * Parses a job's data; null when it is malformed. The queue is untrusted and can hold any JSON,
 * including `null`; a thrown error would be retried forever.
 */
export function readJob(data: unknown): { ids: string[]; requests: RequestIds } | null {
  if (typeof data !== 'object' || data === null) return null;
  const { ids, requests } = data as { ids?: unknown; requests?: unknown };
  return isIds(ids) ? { ids, requests: unpackRequestIds(requests, ids) } : null;
}
