import type { Logger } from '#runtime/process/log';
import { type Outcome, readOutcomes } from '#sql/admissions/outcomes';
import type { OwnId, Pool } from '#sql/db/transaction';
import { readRevocationOutcomes } from '#sql/lifecycle/revocations';

interface WaitOptions {
  timeoutMs: number;
  /** Whether to query at once: the admission of a repeated request may be decided already. */
  checkImmediately?: boolean;
  signal?: AbortSignal;
}

interface WaitingOptions<T> {
  readOutcomes: (admissions: OwnId[]) => Promise<Map<string, T>>;
  log: Logger;
  /** First polling interval, which doubles up to `LONGEST_POLL_MS`. Default: `FIRST_POLL_MS`. */
  firstPollMs?: number;
}

interface Watched<T> {
  tenantNo: number;
  /**
   * Functions that end the wait of one request each: with the outcome, or with null after the timeout or when the
   * client disconnects.
   */
  waits: Set<(outcome: T | null) => void>;
  pollAt: number;
  interval: number;
}

/** Shortest time between polls, so that admissions due at about the same time share a query. */
const LEAST_POLL_MS = 25;
const FIRST_POLL_MS = 100;
const LONGEST_POLL_MS = 500;

/**
 * Waits for the outcome of admissions. Only the registry is authoritative: a notification just
 * triggers a query, and polling covers lost notifications.
 */
export class OutcomeWaiter<T = Outcome> {
  private readonly watched = new Map<string, Watched<T>>();
  private readonly due = new Set<string>();
  private isQuerying = false;
  private isFailing = false;
  private pollTimer: NodeJS.Timeout | undefined;
  private pollTimerAt = Infinity;
  private stopBy = Infinity;

  constructor(private readonly options: WaitingOptions<T>) {}

  /** The outcome, or null after the timeout or when the client disconnects. */
  wait(
    admission: OwnId,
    { timeoutMs, checkImmediately = false, signal }: WaitOptions,
  ): Promise<T | null> {
    const { id } = admission;
    if (signal?.aborted === true) return Promise.resolve(null);
    return new Promise((resolve) => {
      const { waits } = this.watch(admission);
      const giveUp = (): void => finish(null);
      const finish = (outcome: T | null): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', giveUp);
        waits.delete(finish);
        if (waits.size === 0) this.watched.delete(id);
        resolve(outcome);
      };
      const timer = setTimeout(giveUp, Math.min(timeoutMs, this.stopBy - performance.now()));
      waits.add(finish);
      signal?.addEventListener('abort', giveUp);
      if (checkImmediately) this.wake([id]);
    });
  }

  /** Queries these admissions now, after a notification. */
  wake(proofIds: Iterable<string>): void {
    for (const id of proofIds) if (this.watched.has(id)) this.due.add(id);
    void this.queryDue();
  }

  /** Limits all waits to `ms` from now, for shutdown. */
  capDeadline(ms: number): void {
    this.stopBy = performance.now() + ms;
    setTimeout(() => {
      for (const id of [...this.watched.keys()]) this.end(id, null);
    }, ms).unref();
  }

  private watch({ tenantNo, id }: OwnId): Watched<T> {
    const known = this.watched.get(id);
    // Every request that waits for an id gets the outcome, so two tenants must never wait for the same id.
    if (known !== undefined && known.tenantNo !== tenantNo) {
      throw new Error(`two tenants wait for admission ${id}`);
    }
    if (known !== undefined) return known;
    const { firstPollMs: interval = FIRST_POLL_MS } = this.options;
    const pollAt = performance.now() + interval;
    const entry: Watched<T> = { tenantNo, waits: new Set(), pollAt, interval };
    this.watched.set(id, entry);
    this.pollBy(pollAt);
    return entry;
  }

  private pollBy(at: number): void {
    if (this.pollTimerAt <= at) return;
    clearTimeout(this.pollTimer);
    this.pollTimerAt = at;
    this.pollTimer = setTimeout(() => this.poll(), at - performance.now());
  }

  private poll(): void {
    const now = performance.now();
    let next = Infinity;
    for (const [id, entry] of this.watched) {
      if (entry.pollAt <= now) {
        entry.interval = Math.min(entry.interval * 2, LONGEST_POLL_MS);
        entry.pollAt = now + entry.interval;
        this.due.add(id);
      }
      next = Math.min(next, entry.pollAt);
    }
    this.pollTimerAt = Infinity;
    if (this.watched.size > 0) this.pollBy(Math.max(next, now + LEAST_POLL_MS));
    void this.queryDue();
  }

  /** Runs one query at a time: ids that arrive meanwhile share the next query. */
  private async queryDue(): Promise<void> {
    if (this.isQuerying) return;
    this.isQuerying = true;
    while (this.due.size > 0) {
      const admissions = [...this.due].flatMap((id): OwnId[] => {
        const entry = this.watched.get(id);
        return entry === undefined ? [] : [{ tenantNo: entry.tenantNo, id }];
      });
      this.due.clear();
      if (admissions.length > 0) await this.query(admissions);
    }
    this.isQuerying = false;
  }

  private async query(admissions: OwnId[]): Promise<void> {
    const { log, readOutcomes } = this.options;
    try {
      for (const [id, outcome] of await readOutcomes(admissions)) this.end(id, outcome);
      this.isFailing = false;
    } catch (error) {
      // Admissions are durable, so the next poll can query again.
      if (!this.isFailing)
        log.warn({ err: error }, 'registry unavailable, responses to admissions are delayed');
      this.isFailing = true;
    }
  }

  private end(id: string, outcome: T | null): void {
    for (const finish of [...(this.watched.get(id)?.waits ?? [])]) finish(outcome);
  }
}

export const openOutcomeWaiters = (sql: Pool, log: Logger) => ({
  admissionOutcomes: new OutcomeWaiter({ readOutcomes: (ids) => readOutcomes(sql, ids), log }),
  revocationOutcomes: new OutcomeWaiter({
    readOutcomes: (ids) => readRevocationOutcomes(sql, ids),
    log,
  }),
});
