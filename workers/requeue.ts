import { repeat, singleFlight } from '#runtime/concurrency';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import { logRarely, type Logger } from '#runtime/process/log';
import { MAX_IDS_PER_JOB } from '#runtime/queue/backend';
import type { AdmitQueue } from '#runtime/queue/queues';
import { isAnythingPending, pendingOlderThan, type PendingPlace } from '#sql/admissions/pending';
import type { Db } from '#sql/db/transaction';
import { type PendingRevocation, revocationsOlderThan } from '#sql/lifecycle/revocations';
import type { AdmitContext } from './admit/context.js';
import type { AdmissionGroups } from './admit/groups.js';
import { firstOf } from './admit/process.js';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';

/** Ids per page. A page of revocations is one job. */
export const PAGE_SIZE = MAX_IDS_PER_JOB;

interface RequeueOptions {
  everyMs: number;
  /** Milliseconds that an item may wait before it is stale. */
  olderThanMs: number;
  pageSize: number;
  /** Whether the queue is down and takes no jobs. */
  isDown: () => boolean;
  take: AdmissionGroups['take'];
  /** Requeues lost chunks. Never rejects. */
  chunks: () => Promise<void>;
}

/**
 * Requeues a page of stale admissions, a page of stale revocations and the lost chunks every `everyMs` milliseconds
 * until the signal aborts. While nothing is pending, each search is one statement.
 */
export async function keepRequeueing(
  { sql, log, metrics }: Pick<AdmitContext, 'sql' | 'log' | 'metrics'>,
  queue: Pick<AdmitQueue, 'addRevocations'>,
  { everyMs, olderThanMs, pageSize, isDown, take, chunks }: RequeueOptions,
  signal: AbortSignal,
): Promise<void> {
  const failed = (kind: string) => (error: unknown) =>
    logRarely(log, 'warn', { err: error }, `${kind} requeue failed; it is retried`);
  let afterAdmission: PendingPlace | null = null;
  let afterRevocation: PendingRevocation | null = null;
  /** The announcement was lost, or an earlier group failed. Counts the admissions that no group has yet. */
  const admissions = async (): Promise<void> => {
    const stale = await pendingOlderThan(sql, olderThanMs, pageSize, afterAdmission);
    afterAdmission = nextPlace(stale, pageSize);
    const taken = takePage(take, stale);
    metrics?.requeued('admissions', taken.length);
    if (taken.length === 0) return;
    // The engine's log lines map these proof ids to request ids.
    const first = firstOf(taken, NO_REQUEST_IDS);
    logRarely(log, 'warn', { admissions: taken.length, first }, 'stale admissions requeued');
  };
  const revocations = async (): Promise<void> => {
    if (isDown()) return;
    const stale = await revocationsOlderThan(sql, olderThanMs, pageSize, afterRevocation);
    metrics?.requeued('revocations', stale.length);
    if (stale.length > 0) {
      await queue.addRevocations(stale.map(({ requestId }) => requestId));
      logRarely(log, 'warn', { revocations: stale.length }, 'stale revocations requeued');
    }
    afterRevocation = nextPlace(stale, pageSize);
  };
  const search = async (): Promise<void> => {
    if (!(await isAnythingPending(sql))) return;
    await Promise.all([
      admissions().catch(failed('admission')),
      revocations().catch(failed('revocation')),
      chunks(),
    ]);
  };
  await repeat(everyMs, signal, search, failed('admission'));
}

export async function takePending(sql: Db, take: AdmissionGroups['take']): Promise<void> {
  let after: PendingPlace | null = null;
  do {
    const page = await pendingOlderThan(sql, 0, PAGE_SIZE, after);
    takePage(take, page);
    after = nextPlace(page, PAGE_SIZE);
  } while (after !== null);
}

/** Passes the owners as in an announcement, so that the groups rotate over the tenants. */
function takePage(take: AdmissionGroups['take'], page: readonly PendingPlace[]): string[] {
  const ids = page.map(({ proofId }) => proofId);
  const owners = page.map(({ tenantNo }) => String(tenantNo));
  return take(ids, NO_REQUEST_IDS, owners);
}

/** The position of the next page; null after the last page. */
const nextPlace = <P>(page: P[], limit: number): P | null =>
  page.length < limit ? null : (page.at(-1) ?? null);

interface WithoutQueueOptions {
  sql: Db;
  log: Pick<Logger, 'warn' | 'info'>;
  ping: () => Promise<void>;
  revocations: (ids: string[]) => Promise<void>;
  /** Dispatches batch chunks. Never throws. */
  chunks: () => void;
}

const CHECK_EVERY_MS = 1_000;
const SEARCH_EVERY_MS = 250;
const ANSWER_MS = 400;
/**
 * The minimum age of a revocation that is read from the registry: the queue may still deliver newer
 * revocations.
 */
const PENDING_MS = 100;
const AFTER_FAILURE_MS = 1_000;

/**
 * Checks every second whether the queue answers. While it does not, processes the pending revocations
 * and batches of the registry, four times a second. Several workers may process the same items: the
 * first to claim them under the append lock commits.
 */
export function workWithoutQueue(options: WithoutQueueOptions, signal: AbortSignal) {
  const { sql, log, ping } = options;
  let downSince: number | null = null;
  let foundDown = (): void => undefined;
  const down = new Promise<void>((resolve) => (foundDown = resolve));

  const pause = (ms: number): Promise<void> =>
    sleep(ms, undefined, { signal }).catch(() => undefined);

  const check = singleFlight(async () => {
    const error = await failureWithin(ping, ANSWER_MS);
    if (signal.aborted) return;
    if (error !== null && downSince === null) {
      downSince = performance.now();
      foundDown();
      log.warn(
        { err: error },
        'Redis is unreachable: this worker finds batches and revocations in PostgreSQL until Redis answers',
      );
    } else if (error === null && downSince !== null) {
      const seconds = Math.round((performance.now() - downSince) / 1_000);
      downSince = null;
      log.info({ seconds }, 'Redis answers again');
    }
  });

  const processRevocations = singleFlight(async () => {
    let after: PendingRevocation | null = null;
    do {
      const found = revocationsOlderThan(sql, PENDING_MS, PAGE_SIZE, after);
      const page: PendingRevocation[] = await found.catch(() => []);
      after = nextPlace(page, PAGE_SIZE);
      const ids = page.map(({ requestId }) => requestId);
      // Ignores the error, because `revocations` logs its own failures.
      if (ids.length > 0) await options.revocations(ids).catch(() => pause(AFTER_FAILURE_MS));
    } while (after !== null && downSince !== null && !signal.aborted);
  });

  async function watch(): Promise<void> {
    let processing = Promise.resolve();
    while (!signal.aborted) {
      const checked = check();
      // While Redis is down, does not wait for its answer before the search.
      if (downSince === null) await checked;
      if (downSince !== null && !signal.aborted) {
        options.chunks();
        processing = processRevocations();
      }
      await pause(downSince === null ? CHECK_EVERY_MS : SEARCH_EVERY_MS);
    }
    await processing;
  }

  return {
    isDown: () => downSince !== null,
    /** Resolves when the queue is first found unreachable. */
    down,
    /** Resolves after the signal, when the last work has ended. */
    ended: watch(),
  };
}

/** The reason why `query` failed or timed out; null when it succeeded. */
async function failureWithin(query: () => Promise<void>, ms: number): Promise<unknown> {
  const answer = query().then(
    () => null,
    (error: unknown) => error,
  );
  const timer = new AbortController();
  const late = sleep(ms, undefined, { signal: timer.signal }).then(
    // If this process was stalled, the answer may have arrived, but this process has not read it yet.
    async () => {
      await setImmediate();
      await setImmediate();
      return new Error(`no answer in ${ms} ms`);
    },
    () => null,
  );
  const failure = await Promise.race([answer, late]);
  timer.abort();
  return failure;
}
