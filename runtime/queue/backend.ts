import {
  createPostgresBackend,
  createRedisBackend,
  type Processor,
  Queue,
  type QueueOptions,
  Worker,
  type WorkerOptions,
  runMigrations,
} from 'bullmq';
import pg from 'pg';
import { isProofId } from '#protocol/ids';
import type { QueueConfig } from '../config.js';
import { type RequestIds, unpackRequestIds } from '../http/request-ids.js';
import { SESSION } from '../postgres/connect.js';
import { urlPerHost } from '../postgres/hosts.js';
import { OperatorError } from '../process/operator-error.js';
import { openRedis } from './redis.js';

/**
 * Queue names; on Redis their keys share the hash tag of `PREFIX`, as a cluster requires. Batch
 * work has its own queue, so that single admissions never wait behind it.
 */
export const QUEUES = ['admit', 'batch'] as const;
export type QueueName = (typeof QUEUES)[number];
const PREFIX = '{svc}';
/** BullMQ's tables in the database. */
const SCHEMA = 'bullmq';

export interface AdmitData {
  ids: string[];
  /** Packed request ids, only for log lines. */
  requests?: string;
}

/** Job names, by the kind of ids that the job carries. Old workers expect `admit` for chunks. */
export const JOB = { chunks: 'admit', revocations: 'revoke', batches: 'batches' } as const;
export type JobKind = keyof typeof JOB;

export type AdmitProcessor = Processor<AdmitData, void>;

/** The members of BullMQ's Queue or Worker that opening and closing need. */
export interface Member {
  waitUntilReady(): Promise<unknown>;
  close(): Promise<void>;
  on(event: 'error', listener: (error: Error) => void): unknown;
}

export interface Opened<M> {
  member: M;
  /** Closes the client after its work in progress, then the connections. */
  close(): Promise<void>;
  /** Closes the connections immediately, even during an operation of the client. */
  abandon(): void;
  /** Rejects while Redis only reads: on a replica, or without memory. */
  probe: () => Promise<unknown>;
}

export type OnError = (error: Error) => void;

/** Connections of a worker for its jobs, which need a connection only while they are fetched or completed. */
const MOST_MOVING_JOBS = 4;

const queueOptions = {
  defaultJobOptions: {
    removeOnComplete: true,
    removeOnFail: { count: 100 },
    attempts: 5,
    backoff: { type: 'exponential', delay: 250 },
  },
  // Trims the stream of BullMQ's events, which no program reads.
  streams: { events: { maxLen: 0 } },
};

/**
 * Within fifteen seconds another worker takes the jobs of a killed worker. A job may stall any number of times, because
 * the worker causes a stall, not the job.
 */
const workerOptions = {
  autorun: false,
  lockDuration: 10_000,
  stalledInterval: 5_000,
  maxStalledCount: 1_000_000,
  runRetryDelay: 1_000,
};

/**
 * Index of the URL's host to connect to next. A connection that cannot be opened, or that leads to a standby,
 * increments the index.
 */
let hostIndex = 0;

/**
 * pg accepts only one host, so each client connects to one host of the URL.
 *
 * While BullMQ opens, it uses a pool connection without an error listener, so a connection loss would end
 * the process. The loss also fails the query in flight, whose caller handles the error.
 */
const clientOf = (url: string) =>
  class extends pg.Client {
    constructor(options?: pg.ClientConfig) {
      const urls = urlPerHost(url);
      const index = hostIndex;
      super({ ...options, connectionString: urls[index % urls.length] ?? '' });
      this.on('error', () => undefined);
      const moveOn = (): void => {
        if (hostIndex === index) hostIndex += 1;
      };
      let isOpened = false;
      this.once('connect', () => (isOpened = true));
      this.once('end', () => {
        if (!isOpened) moveOn();
      });
      if (urls.length < 2) return;
      const { connection } = this as unknown as { connection: OpeningConnection };
      connection.on('parameterStatus', ({ parameterName, parameterValue }) => {
        if (parameterName !== 'in_hot_standby' || parameterValue !== 'on') return;
        // No statement of the queue works on a standby.
        moveOn();
        connection.stream.destroy();
      });
    }
  };

/** The part of pg's untyped connection that reports the server's parameters. */
interface OpeningConnection {
  stream: { destroy(): void };
  on(
    event: 'parameterStatus',
    listener: (message: { parameterName: string; parameterValue: string }) => void,
  ): void;
}

interface Backend {
  /** Options for any of BullMQ's classes, whose types differ by backend. */
  options: QueueOptions;
  create: typeof createRedisBackend;
  opened: <M extends Member>(member: M) => Opened<M>;
}

/** Settings as pg's `options`, where a space needs a backslash. */
const SESSION_OPTIONS = Object.entries(SESSION)
  .map(([name, value]) => `-c ${name}=${value.replace(' ', '\\ ')}`)
  .join(' ');

/** Without `sslmode` in the URL, pg would take PGSSLMODE from the environment. */
const NO_TLS_BY_DEFAULT = { ssl: false };

const poolOf = (url: string, max: number) =>
  new pg.Pool({
    ...NO_TLS_BY_DEFAULT,
    Client: clientOf(url),
    options: `-c search_path=${SCHEMA} ${SESSION_OPTIONS}`,
    max,
    application_name: 'svc-queue',
    connectionTimeoutMillis: 3_000,
    query_timeout: 10_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
  });

/** @param max connections to Postgres */
function backendOf(
  config: QueueConfig,
  max: number,
  whenAway: 'fail_fast' | 'wait',
  onError: OnError,
): Backend {
  const { redisUrl, databaseUrl } = config;
  if (redisUrl !== null) {
    const client = openRedis(redisUrl, { whenAway, onError });
    return {
      options: { connection: client, prefix: PREFIX },
      create: createRedisBackend,
      opened: (member) => {
        member.on('error', onError);
        return {
          member,
          close: () => member.close(),
          abandon: () => client.disconnect(),
          probe: () => client.set(`${PREFIX}:probe`, '', 'PX', 1),
        };
      },
    };
  }
  // BullMQ's own pool would always connect to the same host for notifications.
  const pool = poolOf(databaseUrl, max);
  const endPool = async (): Promise<void> => {
    if (!pool.ending) await pool.end();
  };
  return {
    options: { connection: pool },
    create: createPostgresBackend as never,
    opened: (member) => {
      member.on('error', onError);
      const close = async (): Promise<void> => {
        await member.close();
        await endPool();
      };
      return { member, close, abandon: () => void endPool(), probe: () => Promise.resolve() };
    },
  };
}

type UsedByProducers =
  | 'add'
  | 'getJobCounts'
  | 'getWaiting'
  | 'getWaitingCount'
  | 'isPaused'
  | 'removeGlobalConcurrency'
  | 'removeGlobalRateLimit'
  | 'removeRateLimitKey'
  | 'resume';
export type OpenQueue = Opened<Pick<Queue<AdmitData, void>, UsedByProducers> & Member>;

export function openQueue(config: QueueConfig, name: QueueName, onError: OnError): OpenQueue {
  const { options, create, opened } = backendOf(config, 3, 'fail_fast', onError);
  return opened(new Queue(name, { ...queueOptions, ...options }, create));
}

export type QueueToRead = Member & Pick<Queue, 'name' | 'getWaitingCount'>;

/** A read-only queue client: opening it writes nothing, so a read-only database role is enough. */
export function openQueueToRead(
  config: QueueConfig,
  name: QueueName,
  onError: OnError,
): Opened<QueueToRead> {
  const { options, create, opened } = backendOf(config, 2, 'fail_fast', onError);
  return opened(new Queue(name, { ...options, skipMetasUpdate: true }, create));
}

export function openWorker(
  config: QueueConfig,
  name: QueueName,
  processor: AdmitProcessor,
  concurrency: number,
  onError: OnError,
): Opened<Member & { run(): Promise<void> }> {
  // One of the connections receives notifications.
  const max = Math.min(concurrency, MOST_MOVING_JOBS) + 3;
  const { options, create, opened } = backendOf(config, max, 'wait', onError);
  const all = { ...options, ...workerOptions, concurrency } as WorkerOptions;
  return opened(new Worker(name, processor, all, create));
}

/** Limit of ids per job: a job with more ids must be forged. */
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

const CONNECT_MS = 3_000;

/**
 * Connects to the first host that accepts a connection and is not a standby. The last host may be a standby, from
 * which a dashboard can read.
 *
 * @param urls of the hosts
 */
async function connectToAnyHost(urls: readonly string[]): Promise<pg.Client> {
  const [connectionString = '', ...others] = urls;
  const client = new pg.Client({
    ...NO_TLS_BY_DEFAULT,
    connectionString,
    options: SESSION_OPTIONS,
    application_name: 'svc-migrate',
    connectionTimeoutMillis: CONNECT_MS,
  });
  // The loss of the connection also fails the query in flight.
  client.on('error', () => undefined);
  try {
    await client.connect();
    if (others.length === 0 || !(await isStandby(client))) return client;
    await client.end();
  } catch (error) {
    if (others.length === 0) throw error;
  }
  return connectToAnyHost(others);
}

async function isStandby(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ is: boolean }>('select pg_is_in_recovery() as is');
  return rows[0]?.is === true;
}

/** @param signal cancels the query in flight */
async function asOwner<T>(
  ownerUrl: string,
  work: (client: pg.Client) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  signal?.throwIfAborted();
  const client = await connectToAnyHost(urlPerHost(ownerUrl));
  // Registered only after connecting: ending the client earlier would leave `connect` pending forever.
  const cut = (): void => void client.end().catch(() => undefined);
  if (signal?.aborted === true) cut();
  else signal?.addEventListener('abort', cut, { once: true });
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** Migrates BullMQ's tables; idempotent and safe to run concurrently. */
export async function migrateQueues(ownerUrl: string, signal?: AbortSignal): Promise<void> {
  await asOwner(ownerUrl, (client) => runMigrations(client, SCHEMA), signal);
}

/**
 * Role of the queue dashboard: it can read the queue's tables and has no access to the registry.
 */
export const BOARD_ROLE = 'svc_board';

/**
 * Grants the engine and the worker row access to the queue's tables, but no DDL, and creates the dashboard's role. The
 * queue is not authoritative, so a role gains nothing by forging jobs.
 */
export async function grantQueueAccess(ownerUrl: string): Promise<void> {
  const roles = 'svc_engine, svc_worker';
  await asOwner(ownerUrl, (client) =>
    client.query(`
      do $$ begin
        create role ${BOARD_ROLE} nologin;
      exception when duplicate_object or unique_violation then
        null; -- roles belong to the cluster
      end $$;
      grant usage on schema ${SCHEMA} to ${roles}, ${BOARD_ROLE};
      grant select on all tables in schema ${SCHEMA} to ${roles}, ${BOARD_ROLE};
      grant insert, update, delete on all tables in schema ${SCHEMA} to ${roles};
      revoke insert, update, delete on ${SCHEMA}.migration from ${roles};
      grant usage, select on all sequences in schema ${SCHEMA} to ${roles};
      grant execute on all functions in schema ${SCHEMA} to ${roles};`),
  );
}

/** Rejects a role that could change jobs or read the registry. */
export async function assertMayOnlyReadQueues(databaseUrl: string): Promise<void> {
  const found = await asOwner(databaseUrl, (client) =>
    client.query<{ name: string; sees: boolean; writes: boolean; power: boolean }>(
      `select r.rolname as name, has_schema_privilege('svc', 'usage') as sees,
        exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
          cross join unnest(array['insert', 'update', 'delete', 'truncate']) as p(privilege)
          where n.nspname = $1 and c.relkind in ('r', 'p') and has_table_privilege(c.oid, p.privilege))
          as writes,
        rolsuper or rolcreaterole or rolbypassrls or rolreplication
          or exists (select from pg_auth_members m where m.member = r.oid) as power
      from pg_roles r where rolname = current_user`,
      [SCHEMA],
    ),
  );
  const [role] = found.rows;
  if (role?.sees === false && !role.writes && !role.power) return;
  throw new OperatorError(
    `the database role ${role?.name ?? '?'} has more privileges than reading the queue: connect the dashboard as ${BOARD_ROLE}`,
  );
}
