import { setImmediate, setTimeout as sleep } from 'node:timers/promises';

/** Resolves like `promise`, or rejects with `late()` after `ms` milliseconds. A result after the timeout is dropped. */
export async function withTimeout<T>(
  promise: Promise<T>,
  ms: number,
  late: () => Error = () => new Error('no answer in time'),
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late()), ms);
  });
  try {
    return await Promise.race([promise, over]);
  } finally {
    clearTimeout(timer);
  }
}

/** Like AbortSignal.timeout, whose signal Node 20 may collect before the timeout if only an AbortSignal.any uses it. */
export function timeoutSignal(ms: number): AbortSignal {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), ms).unref();
  return controller.signal;
}

/** Wraps `ask` so that concurrent calls share the result of one call of `ask`. */
export function singleFlight<T>(ask: () => Promise<T>): () => Promise<T> {
  let asking: Promise<T> | null = null;
  return () =>
    (asking ??= ask().finally(() => {
      asking = null;
    }));
}

/** Returns a function that yields to the event loop once `ms` milliseconds have passed since the last yield. */
export function yieldEvery(ms = 5): () => Promise<void> {
  let began = performance.now();
  return async () => {
    if (performance.now() - began < ms) return;
    await setImmediate();
    began = performance.now();
  };
}

/** Runs `work` now and every `ms` milliseconds until the signal aborts, even if a run fails. */
export async function repeat(
  ms: number,
  signal: AbortSignal,
  work: () => Promise<void>,
  failed: (error: unknown) => void,
): Promise<void> {
  while (!signal.aborted) {
    await work().catch(failed);
    await sleep(ms, undefined, { signal }).catch(() => null);
  }
}

/** A sleep that `wake` ends early. If no sleep is pending, `wake` ends the next sleep at once. */
export class WakeableSleep {
  private isWoken = false;
  private end: (() => void) | null = null;

  wake(): void {
    this.isWoken = true;
    this.end?.();
  }

  /** Resolves after `ms` milliseconds, or earlier at `wake` or the signal. */
  async sleep(ms: number, signal: AbortSignal): Promise<void> {
    if (!this.isWoken && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms);
        this.end = () => {
          clearTimeout(timer);
          resolve();
        };
        signal.addEventListener('abort', this.end, { once: true });
      });
      if (this.end !== null) signal.removeEventListener('abort', this.end);
    }
    this.end = null;
    this.isWoken = false;
  }
}

export interface CoalesceOptions<In, Out> {
  /** Longest time that an item waits for further items of its group, in milliseconds. */
  maxWaitMs: number;
  /**
   * Longest wait of an item that arrived more than `maxWaitMs` after the previous item; default:
   * `maxWaitMs`.
   */
  aloneMs?: number;
  maxItems: number;
  /** A group of this size does not wait for more items; default: `maxItems`. */
  enoughItems?: number;
  /**
   * Limit of concurrently running groups; unlimited by default. At the limit, items gather into
   * larger groups instead of starting more groups.
   */
  maxRunning?: number;
  /** Processes a group; results are in the order of the items. */
  run: (items: In[]) => Promise<Out[]>;
  /**
   * Whether to retry the items of a failed group one by one. Return false for failures that affect
   * every item (the database is down): retries would only repeat the failure.
   */
  isRetryAlone?: (error: unknown) => boolean;
}

interface Waiting<In, Out> {
  item: In;
  resolve: (result: Out) => void;
  reject: (reason: unknown) => void;
}

/**
 * Groups concurrent calls (micro-batching) and resolves each call with the result of its own item.
 * When a group fails, its items are retried separately, so that one bad item does not fail the
 * others.
 */
export function coalesce<In, Out>(options: CoalesceOptions<In, Out>): (item: In) => Promise<Out> {
  const { maxWaitMs, maxItems, maxRunning = Infinity } = options;
  const { aloneMs = maxWaitMs, enoughItems = maxItems } = options;
  const { run, isRetryAlone = () => true } = options;
  const gathering: Waiting<In, Out>[] = [];
  let lastArrival = -Infinity;
  /** The time at which a group of the gathered items starts, even if they are fewer than `enoughItems`. */
  let due = 0;
  let running = 0;
  let timer: NodeJS.Timeout | undefined;

  async function answer(group: Waiting<In, Out>[]): Promise<void> {
    const results = await run(group.map(({ item }) => item));
    if (results.length !== group.length) {
      throw new Error(
        `a group of ${String(group.length)} items returned ${String(results.length)} results`,
      );
    }
    group.forEach(({ resolve }, index) => {
      resolve(results[index] as Out);
    });
  }

  async function handle(group: Waiting<In, Out>[]): Promise<void> {
    try {
      await answer(group);
    } catch (error) {
      if (group.length > 1 && isRetryAlone(error)) await handleAlone(group);
      else for (const { reject } of group) reject(error);
    }
  }

  async function handleAlone(group: Waiting<In, Out>[]): Promise<void> {
    for (const [index, waiting] of group.entries()) {
      try {
        await answer([waiting]);
      } catch (error) {
        waiting.reject(error);
        if (isRetryAlone(error)) continue;
        for (const { reject } of group.slice(index + 1)) reject(error);
        return;
      }
    }
  }

  function startDue(): void {
    clearTimeout(timer);
    timer = undefined;
    if (gathering.length === 0 || running >= maxRunning) return;
    const waitMs = due - performance.now();
    if (gathering.length < enoughItems && waitMs > 0) {
      timer = setTimeout(() => {
        due = -Infinity;
        startDue();
      }, waitMs);
      return;
    }
    start(gathering.splice(0, maxItems));
    startDue();
  }

  function start(group: Waiting<In, Out>[]): void {
    running += 1;
    void handle(group).then(() => {
      running -= 1;
      startDue();
    });
  }

  return (item) =>
    new Promise<Out>((resolve, reject) => {
      const now = performance.now();
      if (gathering.length === 0) due = now + (now - lastArrival > maxWaitMs ? aloneMs : maxWaitMs);
      lastArrival = now;
      gathering.push({ item, resolve, reject });
      if (timer === undefined || gathering.length >= enoughItems) startDue();
    });
}
