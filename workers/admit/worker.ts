import { setTimeout as sleep } from 'node:timers/promises';
import { PolicySetError } from '#policy/policy-set';
import type { KeyStatus } from '#protocol/keys';
import type { QueueConfig } from '#runtime/config';
import { repeat, singleFlight } from '#runtime/concurrency';
import { type RequestIds, NO_REQUEST_IDS } from '#runtime/http/request-ids';
import { healthCheck, type Readiness, TaskWatchdog, type StallError } from '#runtime/ops/health';
import type { Sql } from '#runtime/postgres/connect';
import { logRarely } from '#runtime/process/log';
import { isIds } from '#runtime/queue/backend';
import { openAdmitQueue, openBatchQueue, openConsumer } from '#runtime/queue/queues';
import { policyActivations } from '#sql/admissions/policies';
import { announcedIn, PENDING_CHANNEL } from '#sql/admissions/outcomes';
import { type Db, type Pool, requirePrimary } from '#sql/db/transaction';
import { groupRevocations } from '../lifecycle/revocations.js';
import { keepRequeueing, PAGE_SIZE, takePending, workWithoutQueue } from '../requeue.js';
import { startChunkDispatcher } from './batches.js';
import {
  type AdmitContext,
  DeferredError,
  signingKeyState,
  SigningKeyInactiveError,
} from './context.js';
import type { DelegatedKeys } from './delegated-keys.js';
import { type AdmissionGroups, groupAdmissions } from './groups.js';
import { firstOf, processAdmissions, processChunks } from './process.js';

export const WORKER_DEFAULTS = {
  /** The number of revocation and batch jobs that are processed concurrently. */
  jobsAtOnce: 32,
  /** Groups processed concurrently; they append one after the other, under the append lock. */
  groupsAtOnce: 2,
  /** Batch chunks processed concurrently. Keep it low: single admissions wait for each chunk. */
  batchConcurrency: 1,
  requeueEveryMs: 1000,
  /** Milliseconds after which an admission or revocation without an outcome is requeued. */
  staleAfterMs: 2000,
  /** Lease of a batch chunk, in milliseconds; an unfinished chunk is requeued afterwards. */
  chunkLeaseMs: 5000,
  /**
   * Milliseconds after which an unfinished group, chunk or revocation job ends the process. A group takes a dozen
   * statements with a timeout of 30 s each; the limit allows for a batch chunk whose items are retried one
   * by one.
   */
  stallTimeoutMs: 600_000,
};

type WorkerOptions = typeof WORKER_DEFAULTS;

const IDS_AT_ONCE = 256;

/** Time after which a group prepares no more admissions, because slow policies of one tenant would delay all tenants. */
const PREPARE_MS = 30;

/**
 * Limit on waiting ids, because any database role can announce ids. The requeue finds the admissions beyond the limit.
 */
const MOST_ANNOUNCED = 100_000;

/** Pause between checks of an inactive signing key. */
const KEY_CHECK_MS = 1_000;

export type AdmitWorker = ReturnType<typeof startAdmitWorker>;

/**
 * Processes announced admissions and jobs from the queue, and requeues lost admissions and jobs.
 * Calls `onStall` when a job does not end: this process would renew its lock on the job forever, so
 * no other worker would get the job. By default `onStall` throws, which ends the program.
 */
export function startAdmitWorker(
  context: WorkerContext,
  queueConfig: QueueConfig,
  options: WorkerOptions = WORKER_DEFAULTS,
  onStall: (error: StallError) => void = (error) => {
    throw error;
  },
) {
  const { log, sql } = context;
  const stopping = new AbortController();
  const { signal } = stopping;
  const watchdog = new TaskWatchdog({
    task: 'a worker job',
    limitMs: options.stallTimeoutMs,
    onStall,
  });
  const watched: Watched = async (kind, ids, requests, work) => {
    try {
      return await watchdog.watch(work);
    } catch (error) {
      // The queue only counts failures; this log line has the cause.
      logRarely(
        log,
        'error',
        { err: error, [kind]: ids.length, first: firstOf(ids, requests) },
        'admissions cannot be committed; they are kept and retried',
      );
      throw error;
    }
  };
  const queue = openAdmitQueue(queueConfig, { log });
  const isDown = (): boolean => withoutQueue?.isDown() ?? false;
  const batches = startBatches(context, queueConfig, options, watched, isDown);
  const admissions = takeAnnounced(context, options, watched, signal);
  const commit = groupRevocations(context);
  const revoke = (ids: string[], requests?: RequestIds): Promise<void> =>
    watchdog.watch(() => commit(ids, requests));
  const worker = openConsumer(
    queueConfig,
    'admit',
    {
      revocations: revoke,
      batches: (ids, requests) => {
        for (const id of ids) {
          log.debug({ batch_id: `batch_${id}`, request_id: requests.of(id) }, 'batch received');
        }
        batches.dispatcher.wake();
        return Promise.resolve();
      },
    },
    { concurrency: options.jobsAtOnce, log },
  );
  // A queue in PostgreSQL is down only when the registry is down.
  const withoutQueue =
    queueConfig.redisUrl === null
      ? null
      : workWithoutQueue(
          {
            sql,
            log,
            ping: singleFlight(
              async () => void (await Promise.all([queue.ping(), batches.queue.ping()])),
            ),
            revocations: revoke,
            chunks: () => batches.dispatcher.wake(),
          },
          signal,
        );
  const renewing = 'delegated' in context && context.delegated.keepRenewed(signal);
  const requeueing = keepRequeueing(
    context,
    queue,
    {
      everyMs: options.requeueEveryMs,
      olderThanMs: options.staleAfterMs,
      pageSize: PAGE_SIZE,
      isDown,
      take: admissions.take,
      chunks: () => batches.dispatcher.requeue(),
    },
    signal,
  );
  const takesJobs = (): boolean => worker.isRunning() && batches.worker.isRunning();

  return {
    isQueueUp: () => !isDown(),
    queues: async () => ({ admit: await queue.stats(), batch: await batches.queue.stats() }),
    readiness: workerReadiness(context, () => queue.ping(), takesJobs, isDown),
    /** Resolves when the worker takes jobs, or detects that the queue is unreachable. */
    ready: Promise.race([
      Promise.all([worker.ready, batches.worker.ready]),
      ...(withoutQueue === null ? [] : [withoutQueue.down]),
    ]).then(() => admissions.listening),
    /** Finishes the current jobs and starts no others. */
    close: async (): Promise<void> => {
      stopping.abort();
      await Promise.all([
        admissions.close(),
        worker.close(),
        batches.worker.close(),
        withoutQueue?.ended,
        renewing,
      ]);
      watchdog.stop();
      await requeueing;
      await batches.dispatcher.close();
      await batches.queue.close();
      await queue.close();
    },
  };
}

/** Processes items under the watchdog, and logs why they cannot be committed. */
type Watched = <T>(
  kind: 'admissions' | 'chunks',
  ids: string[],
  requests: RequestIds,
  work: () => Promise<T>,
) => Promise<T>;

/** A worker signs with one AEP key, or with keys that a root key delegates. */
export type WorkerContext = { sql: Pool & Pick<Sql, 'onNotification'> } & (
  | AdmitContext
  | (Omit<AdmitContext, 'signer' | 'keyId' | 'logOrigin'> & { delegated: DelegatedKeys })
);

/** The context with the current signing key; null while no root key has delegated to this worker. */
function contextNow(context: WorkerContext): AdmitContext | null {
  if (!('delegated' in context)) return context;
  const { current } = context.delegated;
  return current && { ...context, ...current };
}

/** The context for one group: one key signs all of its proofs. */
function signingContext(context: WorkerContext): AdmitContext {
  const now = contextNow(context);
  if (now === null) throw new SigningKeyInactiveError('no root key has delegated to this worker');
  return now;
}

/** Processes announced admissions in groups, except while the signing key is not active. */
function takeAnnounced(
  context: WorkerContext,
  { groupsAtOnce }: WorkerOptions,
  watched: Watched,
  signal: AbortSignal,
) {
  const { sql } = context;
  const groups = groupAdmissions({
    groupsAtOnce,
    idsAtOnce: IDS_AT_ONCE,
    process: async (ids, requests) => {
      try {
        return await watched('admissions', ids, requests, async () =>
          processAdmissions(signingContext(context), ids, requests, PREPARE_MS),
        );
      } catch (error) {
        // Takes no admissions until its key is active, so that workers with active keys process them.
        const cause = error instanceof DeferredError ? error.cause : error;
        if (cause instanceof SigningKeyInactiveError) await untilKeyIsActive();
        throw error;
      }
    },
  });
  let waitingForKey = 0;
  const take: AdmissionGroups['take'] = (...admissions) =>
    waitingForKey === 0 ? groups.take(...admissions) : [];

  async function untilKeyIsActive(): Promise<void> {
    waitingForKey += 1;
    while (!signal.aborted) {
      const now = contextNow(context);
      if ((now && (await signingKeyState(now).catch(() => null))) === 'active') break;
      await sleep(KEY_CHECK_MS, undefined, { signal }).catch(() => undefined);
    }
    waitingForKey -= 1;
    if (waitingForKey === 0) await takePending(sql, take).catch(() => undefined);
  }

  const listening = new Promise<void>((resolve) => {
    const onAnnounced = (payload: string): void => {
      const { ids, requests, tenants } = announcedIn(payload);
      if (isIds(ids) && groups.waiting() < MOST_ANNOUNCED) take(ids, requests, tenants);
    };
    sql.onNotification(PENDING_CHANNEL, onAnnounced, () => {
      resolve();
      // Finds admissions announced while this worker did not listen. If that fails, the requeue finds them when stale.
      void takePending(sql, take).catch(() => undefined);
    });
  });
  return { take, listening, close: () => groups.close() };
}

/** Fills the queue of chunks and processes its jobs; processes chunks directly while the queue is down. */
function startBatches(
  context: WorkerContext,
  queueConfig: QueueConfig,
  { batchConcurrency, chunkLeaseMs }: WorkerOptions,
  watched: Watched,
  isDown: () => boolean,
) {
  const { log, sql } = context;
  const queue = openBatchQueue(queueConfig, { log });
  const process = (ids: string[], requests = NO_REQUEST_IDS): Promise<void> => {
    // Dispatches the next chunk, for which taking this chunk made room in the queue.
    dispatcher.wake();
    return watched('chunks', ids, requests, async () =>
      processChunks(signingContext(context), ids),
    );
  };
  const dispatcher = startChunkDispatcher({
    sql,
    log,
    queue: {
      depth: async () => (isDown() ? 0 : queue.depth()),
      addChunks: async (ids) => {
        if (!isDown()) return queue.addChunks(ids);
        await process([...ids]);
        return '';
      },
    },
    ahead: batchConcurrency + 1,
    chunkLeaseMs,
    requeued: (chunks) => context.metrics?.requeued('batches', chunks),
  });
  const consumer = { concurrency: batchConcurrency, log };
  const worker = openConsumer(queueConfig, 'batch', { chunks: process }, consumer);
  return { queue, dispatcher, worker };
}

/** Ready when this worker can commit admissions. */
function workerReadiness(
  context: WorkerContext,
  ping: () => Promise<void>,
  takesJobs: () => boolean,
  isDown: () => boolean,
): () => Promise<Readiness> {
  // Null during a check, because the previous state may be outdated.
  let signingKey: KeyStatus | null = null;
  const checkDatabase = healthCheck(async () => {
    signingKey = null;
    await requirePrimary(context.sql);
    const now = contextNow(context);
    signingKey = now === null ? 'unknown' : await signingKeyState(now);
  });
  const checkQueue = healthCheck(ping);

  return async () => {
    const [database, queue] = await Promise.all([checkDatabase(), checkQueue()]);
    const isConsuming = queue === 'up' && takesJobs();
    const jobs = isConsuming || isDown() ? 'up' : 'down';
    // With an inactive key, a worker is not ready: it commits no admission.
    const ready = database === 'up' && jobs === 'up' && signingKey === 'active';
    const whenReady = isConsuming ? 'ready' : 'degraded';
    return {
      ready,
      details: {
        status: ready ? whenReady : 'unavailable',
        dependencies: {
          database,
          queue,
          ...('delegated' in context && { root_key: context.delegated.root }),
        },
        jobs,
        ...(signingKey !== null && { signing_key: signingKey }),
      },
    };
  };
}

const POLICY_CHECK_MS = 30_000;

/**
 * Loads the active and scheduled policy sets, now and at an interval until the signal aborts, so that an
 * unusable set is reported before admissions are deferred, and a usable set is cached when it becomes
 * active. Never rejects.
 */
export function watchPolicies(
  { sql, log, policy }: Pick<AdmitContext, 'log' | 'policy'> & { sql: Db },
  signal: AbortSignal,
): Promise<void> {
  const check = async (): Promise<void> => {
    for (const { digest, activeFrom, state } of await policyActivations(sql)) {
      if (state === 'over') continue;
      try {
        await policy(digest);
      } catch (error) {
        if (!(error instanceof PolicySetError)) throw error;
        log.error(
          { digest: digest.toString('hex'), state, active_from: activeFrom, reason: error.message },
          'policy watch: this worker cannot run a policy set; admissions under it are deferred',
        );
      }
    }
  };
  return repeat(POLICY_CHECK_MS, signal, check, (error) => {
    log.warn({ err: error }, 'policy watch: the check failed; it is retried');
  });
}
