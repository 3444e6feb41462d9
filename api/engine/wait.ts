import type { Logger } from '#runtime/log';
import type { Settlement } from '#sql/settlement';

/**
 * Waits for admissions to settle. The registry is asked and nobody else is believed: an event from
 * the queue only says that now is a good time to ask, and when none comes, it is asked anyway.
 */
export interface Waiting {
  /** The settlement, or null when there was none in time or `signal` fired. */
  settlement(proofId: string, options: WaitOptions): Promise<Settlement | null>;
  /** The queue says that these are done. */
  wake(proofIds: Iterable<string>): void;
  /** For a server that is stopping: nobody waits longer than `ms` from now. */
  hurry(ms: number): void;
}

export interface WaitOptions {
  timeoutMs: number;
  /** Ask at once: the admission is older than the request that waits for it. */
  askNow?: boolean;
  signal?: AbortSignal;
}

export interface WaitingOptions {
  settledIn: (proofIds: string[]) => Promise<Map<string, Settlement>>;
  log: Logger;
  /** With no event, the registry is first asked after so long, then at doubling intervals. */
  firstAskMs?: number;
  longestAskMs?: number;
}

interface Watched {
  answer: Set<(settlement: Settlement | null) => void>;
  askAt: number;
  interval: number;
}

const TICK_MS = 25;

export function createWaiting(options: WaitingOptions): Waiting {
  const { settledIn, log, firstAskMs = 100, longestAskMs = 500 } = options;
  const watched = new Map<string, Watched>();
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
      const ids = [...due].filter((id) => watched.has(id));
      due.clear();
      if (ids.length === 0) continue;
      try {
        for (const [id, settlement] of await settledIn(ids)) deliver(id, settlement);
        failing = false;
      } catch (error) {
        // The intake is durable, so there is nothing to undo; the next tick asks again.
        if (!failing) log.warn({ err: error }, 'the registry cannot be asked for settlements');
        failing = true;
      }
    }
    asking = false;
  }

  function deliver(id: string, settlement: Settlement): void {
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

  function watch(id: string): Watched {
    const known = watched.get(id);
    if (known !== undefined) return known;
    const entry: Watched = {
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
    settlement(proofId, { timeoutMs, askNow = false, signal }) {
      if (signal?.aborted === true) return Promise.resolve(null);
      return new Promise((resolve) => {
        const entry = watch(proofId);
        const giveUp = (): void => finish(null);
        const arm = (by: number): NodeJS.Timeout =>
          setTimeout(giveUp, Math.max(0, by - performance.now()));
        let deadline = Math.min(performance.now() + timeoutMs, stopBy);
        let timer = arm(deadline);
        const hurry = (by: number): void => {
          if (by >= deadline) return;
          deadline = by;
          clearTimeout(timer);
          timer = arm(by);
        };
        const finish = (settlement: Settlement | null): void => {
          clearTimeout(timer);
          signal?.removeEventListener('abort', giveUp);
          hurried.delete(hurry);
          entry.answer.delete(finish);
          if (entry.answer.size === 0) unwatch(proofId);
          resolve(settlement);
        };
        entry.answer.add(finish);
        hurried.add(hurry);
        signal?.addEventListener('abort', giveUp, { once: true });
        if (askNow) {
          due.add(proofId);
          void ask();
        }
      });
    },

    wake(proofIds) {
      for (const id of proofIds) if (watched.has(id)) due.add(id);
      void ask();
    },

    hurry(ms) {
      stopBy = performance.now() + ms;
      for (const hurry of [...hurried]) hurry(stopBy);
    },
  };
}
