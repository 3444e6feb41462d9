import type { Logger } from '#runtime/process/log';
import type { Settlement } from '#sql/admissions/outcomes';
import type { OwnId } from '#sql/db/tenant-scope';

/**
 * Waits for admissions to settle. The registry is asked and nobody else is believed: an event from
 * the queue only says that now is a good time to ask, and when none comes, it is asked anyway.
 */
export interface OutcomeWaiter<T = Settlement> {
  /** The settlement, or null when there was none in time or the client has gone. */
  settlement(admission: OwnId, options: WaitOptions): Promise<T | null>;
  /** The queue says that these are done. */
  wake(proofIds: Iterable<string>): void;
  /** For a server that is stopping: nobody waits longer than `ms` from now. */
  capDeadline(ms: number): void;
}

export interface WaitOptions {
  timeoutMs: number;
  /** Ask at once: the admission is older than the request that waits for it. */
  checkImmediately?: boolean;
  /** What the client is answered with: when it is closed before that, nobody waits any more. */
  response?: AwaitedResponse;
}

/** Of Node's `ServerResponse`, what matters here. */
export interface AwaitedResponse {
  readonly closed: boolean;
  readonly writableFinished: boolean;
  once(event: 'close', listener: () => void): unknown;
  off(event: 'close', listener: () => void): unknown;
}

export interface WaitingOptions<T = Settlement> {
  readOutcomes: (admissions: OwnId[]) => Promise<Map<string, T>>;
  log: Logger;
  /** With no event, the registry is first asked after so long, then at doubling intervals. */
  firstAskMs?: number;
  longestAskMs?: number;
}

interface Watched<T> {
  tenantNo: number;
  answer: Set<(settlement: T | null) => void>;
  askAt: number;
  interval: number;
}

const TICK_MS = 25;

export function createOutcomeWaiter<T = Settlement>(options: WaitingOptions<T>): OutcomeWaiter<T> {
  const { readOutcomes, log, firstAskMs = 100, longestAskMs = 500 } = options;
  const watched = new Map<string, Watched<T>>();
  const due = new Set<string>();
  let asking = false;
  let failing = false;
  let ticker: NodeJS.Timeout | null = null;
  let stopBy = Infinity;

  // One query at a time for everyone: while it is under way, the next one gathers its ids.
  async function ask(): Promise<void> {
    if (asking) return;
    asking = true;
    while (due.size > 0) {
      const admissions = [...due].flatMap((id): OwnId[] => {
        const entry = watched.get(id);
        return entry === undefined ? [] : [{ tenantNo: entry.tenantNo, id }];
      });
      due.clear();
      if (admissions.length === 0) continue;
      try {
        for (const [id, settlement] of await readOutcomes(admissions)) deliver(id, settlement);
        failing = false;
      } catch (error) {
        // The intake is durable, so there is nothing to undo; the next tick asks again.
        if (!failing) log.warn({ err: error }, 'the registry cannot be asked for settlements');
        failing = true;
      }
    }
    asking = false;
  }

  function deliver(id: string, settlement: T): void {
    for (const answer of [...(watched.get(id)?.answer ?? [])]) answer(settlement);
  }

  function tick(): void {
    const now = performance.now();
    for (const [id, entry] of watched) {
      if (entry.askAt > now) continue;
      entry.interval = Math.min(entry.interval * 2, longestAskMs);
      entry.askAt = now + entry.interval;
      due.add(id);
    }
    void ask();
  }

  function watch({ tenantNo, id }: OwnId): Watched<T> {
    const known = watched.get(id);
    // An answer goes to whoever waits for the id, so an id is never two tenants'.
    if (known !== undefined && known.tenantNo !== tenantNo) throw new Error(`whose is ${id}?`);
    if (known !== undefined) return known;
    const entry: Watched<T> = {
      tenantNo,
      answer: new Set(),
      askAt: performance.now() + firstAskMs,
      interval: firstAskMs,
    };
    watched.set(id, entry);
    ticker ??= setInterval(tick, TICK_MS);
    return entry;
  }

  function unwatch(id: string): void {
    watched.delete(id);
    if (watched.size > 0 || ticker === null) return;
    clearInterval(ticker);
    ticker = null;
  }

  const hurried = new Set<(by: number) => void>();

  return {
    settlement(admission, { timeoutMs, checkImmediately = false, response }) {
      const { id } = admission;
      if (response?.closed === true) return Promise.resolve(null);
      return new Promise((resolve) => {
        const entry = watch(admission);
        const giveUp = (): void => finish(null);
        const leave = (): void => {
          if (response?.writableFinished !== true) giveUp();
        };
        const arm = (by: number): NodeJS.Timeout =>
          setTimeout(giveUp, Math.max(0, by - performance.now()));
        let deadline = Math.min(performance.now() + timeoutMs, stopBy);
        let timer = arm(deadline);
        const capDeadline = (by: number): void => {
          if (by >= deadline) return;
          deadline = by;
          clearTimeout(timer);
          timer = arm(by);
        };
        const finish = (settlement: T | null): void => {
          clearTimeout(timer);
          response?.off('close', leave);
          hurried.delete(capDeadline);
          entry.answer.delete(finish);
          if (entry.answer.size === 0) unwatch(id);
          resolve(settlement);
        };
        entry.answer.add(finish);
        hurried.add(capDeadline);
        response?.once('close', leave);
        if (checkImmediately) {
          due.add(id);
          void ask();
        }
      });
    },

    wake(proofIds) {
      for (const id of proofIds) if (watched.has(id)) due.add(id);
      void ask();
    },

    capDeadline(ms) {
      stopBy = performance.now() + ms;
      for (const capDeadline of [...hurried]) capDeadline(stopBy);
    },
  };
}
