import type { Logger } from '#runtime/process/log';
import { type Outcome, readOutcomes } from '#sql/admissions/outcomes';
import type { OwnId, Pool } from '#sql/db/transaction';
import { readRevocationOutcomes } from '#sql/lifecycle/revocations';

/**
 * Waits for the outcome of admissions. Only the registry is authoritative: a notification just
 * triggers a query, and polling covers lost notifications.
 */
export interface OutcomeWaiter<T = Outcome> {
  /** The outcome, or null after the timeout or when the client disconnects. */
  wait(admission: OwnId, options: WaitOptions): Promise<T | null>;
  /** Queries these admissions now, after a notification. */
  wake(proofIds: Iterable<string>): void;
  /** Limits all waits to `ms` from now, for shutdown. */
  capDeadline(ms: number): void;
}

interface WaitOptions {
  timeoutMs: number;
  /** Query at once: the admission is older than the request and may be decided already. */
  checkImmediately?: boolean;
  signal?: AbortSignal;
}

interface WaitingOptions<T> {
  readOutcomes: (admissions: OwnId[]) => Promise<Map<string, T>>;
  log: Logger;
  /** First polling interval, which doubles up to `LONGEST_POLL_MS`. */
  firstPollMs?: number;
}

interface Watched<T> {
  tenantNo: number;
  answer: Set<(outcome: T | null) => void>;
  pollAt: number;
  interval: number;
}

/** Shortest time between polls, so that admissions due at about the same time share a query. */
const LEAST_POLL_MS = 25;
const LONGEST_POLL_MS = 500;

export const openOutcomeWaiters = (sql: Pool, log: Logger) => ({
  admissionOutcomes: createOutcomeWaiter({ readOutcomes: (ids) => readOutcomes(sql, ids), log }),
  revocationOutcomes: createOutcomeWaiter({
    readOutcomes: (ids) => readRevocationOutcomes(sql, ids),
    log,
  }),
});

export function createOutcomeWaiter<T = Outcome>(options: WaitingOptions<T>): OutcomeWaiter<T> {
  const { readOutcomes, log, firstPollMs = 100 } = options;
  const watched = new Map<string, Watched<T>>();
  const due = new Set<string>();
  let isQuerying = false;
  let failing = false;
  let pollTimer: NodeJS.Timeout | undefined;
  let pollTimerAt = Infinity;
  let stopBy = Infinity;

  // Runs one query at a time: ids that arrive meanwhile share the next query.
  async function queryDue(): Promise<void> {
    if (isQuerying) return;
    isQuerying = true;
    while (due.size > 0) {
      const admissions = [...due].flatMap((id): OwnId[] => {
        const entry = watched.get(id);
        return entry === undefined ? [] : [{ tenantNo: entry.tenantNo, id }];
      });
      due.clear();
      if (admissions.length === 0) continue;
      try {
        for (const [id, outcome] of await readOutcomes(admissions)) deliver(id, outcome);
        failing = false;
      } catch (error) {
        // Admissions are durable, so the next poll can query again.
        if (!failing)
          log.warn({ err: error }, 'registry unavailable, responses to admissions are delayed');
        failing = true;
      }
    }
    isQuerying = false;
  }

  function deliver(id: string, outcome: T): void {
    for (const answer of [...(watched.get(id)?.answer ?? [])]) answer(outcome);
  }

  function poll(): void {
    const now = performance.now();
    let next = Infinity;
    for (const [id, entry] of watched) {
      if (entry.pollAt <= now) {
        entry.interval = Math.min(entry.interval * 2, LONGEST_POLL_MS);
        entry.pollAt = now + entry.interval;
        due.add(id);
      }
      next = Math.min(next, entry.pollAt);
    }
    pollTimerAt = Infinity;
    if (watched.size > 0) pollBy(Math.max(next, now + LEAST_POLL_MS));
    void queryDue();
  }

  function pollBy(at: number): void {
    if (pollTimerAt <= at) return;
    clearTimeout(pollTimer);
    pollTimerAt = at;
    pollTimer = setTimeout(poll, at - performance.now());
  }

  function watch({ tenantNo, id }: OwnId): Watched<T> {
    const known = watched.get(id);
    // Every request that waits for an id gets the outcome, so two tenants must never wait for one id.
    if (known !== undefined && known.tenantNo !== tenantNo) {
      throw new Error(`two tenants wait for ${id}`);
    }
    if (known !== undefined) return known;
    const entry: Watched<T> = {
      tenantNo,
      answer: new Set(),
      pollAt: performance.now() + firstPollMs,
      interval: firstPollMs,
    };
    watched.set(id, entry);
    pollBy(entry.pollAt);
    return entry;
  }

  return {
    wait(admission, { timeoutMs, checkImmediately = false, signal }) {
      const { id } = admission;
      if (signal?.aborted === true) return Promise.resolve(null);
      return new Promise((resolve) => {
        const entry = watch(admission);
        const giveUp = (): void => finish(null);
        const finish = (outcome: T | null): void => {
          clearTimeout(timer);
          signal?.removeEventListener('abort', giveUp);
          entry.answer.delete(finish);
          if (entry.answer.size === 0) watched.delete(id);
          resolve(outcome);
        };
        const timer = setTimeout(giveUp, Math.min(timeoutMs, stopBy - performance.now()));
        entry.answer.add(finish);
        signal?.addEventListener('abort', giveUp);
        if (checkImmediately) {
          due.add(id);
          void queryDue();
        }
      });
    },

    wake(proofIds) {
      for (const id of proofIds) if (watched.has(id)) due.add(id);
      void queryDue();
    },

    capDeadline(ms) {
      stopBy = performance.now() + ms;
      setTimeout(() => {
        for (const { answer } of [...watched.values()]) for (const end of [...answer]) end(null);
      }, ms).unref();
    },
  };
}
