import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from '#runtime/process/log';
import { singleFlight } from '#runtime/concurrency';
import type { Db } from '#sql/db/transaction';
import { type PendingRevocation, revocationsOlderThan } from '#sql/lifecycle/revocations';
import { nextPlace, PAGE_SIZE } from './requeue.js';

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
