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

/** Too much work is queued. Nothing was done: retry later. */
export class BusyError extends Error {
  constructor(
    message: string,
    /** Whether only the share of this owner is full: its work is not slow, and the work of other owners could start. */
    readonly isOwnerLimit: boolean,
  ) {
    super(message);
  }
}

export interface Limits {
  /** Limit of concurrent units of work over all owners. */
  total: number;
  perOwner: number;
  /** Limit of queued units of work per owner; further work is rejected at once. */
  maxWaiting: number;
  /** Longest time in the queue, in milliseconds. */
  timeoutMs: number;
}

/** A unit of work that is running. */
interface Unit {
  /** Milliseconds, by the monotonic clock. */
  since: number;
}

interface Owner {
  /** In start order. */
  running: Set<Unit>;
  waiting: Set<() => void>;
}

/**
 * Limits the concurrent units of work, in total and per owner, such as a tenant. Owners with queued
 * work are served round-robin.
 */
export class Limiter {
  private active = 0;
  private readonly owners = new Map<number, Owner>();

  constructor(private readonly limits: Limits) {}

  /**
   * Runs `work` when a slot is free, both of the owner and of the total.
   *
   * @param timeoutMs longest time in the queue
   * @throws BusyError when the owner's queue is full or the timeout passed
   */
  async run<T>(
    ownerNo: number,
    work: () => Promise<T>,
    timeoutMs = this.limits.timeoutMs,
  ): Promise<T> {
    const owner = this.owners.get(ownerNo) ?? { running: new Set(), waiting: new Set() };
    this.owners.set(ownerNo, owner);
    try {
      const unit = this.hasRoom(owner) ? this.begin(owner) : await this.turn(owner, timeoutMs);
      try {
        return await work();
      } finally {
        this.end(owner, unit);
      }
    } finally {
      if (owner.running.size === 0 && owner.waiting.size === 0) this.owners.delete(ownerNo);
    }
  }

  private hasRoom(owner: Owner): boolean {
    return this.active < this.limits.total && owner.running.size < this.limits.perOwner;
  }

  private busy(owner: Owner, message: string): BusyError {
    const { total, perOwner, timeoutMs: slowMs } = this.limits;
    const [oldest] = owner.running;
    // Slow work, for example in a slow database, is no fault of the owner.
    const isSlow = oldest !== undefined && performance.now() - oldest.since >= slowMs;
    const isFull = owner.running.size >= perOwner && this.active < total;
    return new BusyError(message, isFull && !isSlow);
  }

  private begin(owner: Owner): Unit {
    const unit = { since: performance.now() };
    this.active += 1;
    owner.running.add(unit);
    return unit;
  }

  private turn(owner: Owner, timeoutMs: number): Promise<Unit> {
    if (owner.waiting.size >= this.limits.maxWaiting)
      return Promise.reject(this.busy(owner, 'the queue is full'));
    return new Promise((resolve, reject) => {
      const serve = (): void => {
        clearTimeout(timer);
        owner.waiting.delete(serve);
        resolve(this.begin(owner));
      };
      const timer = setTimeout(() => {
        owner.waiting.delete(serve);
        reject(this.busy(owner, 'no slot became free within the timeout'));
      }, timeoutMs);
      owner.waiting.add(serve);
    });
  }

  private end(owner: Owner, unit: Unit): void {
    this.active -= 1;
    owner.running.delete(unit);
    for (const [no, next] of this.owners) {
      const [serve] = next.waiting;
      if (serve === undefined || !this.hasRoom(next)) continue;
      this.owners.delete(no);
      this.owners.set(no, next);
      serve();
      break;
    }
  }
}

/**
 * Limits work that takes a core for tenths of a second. After each unit of work, its slot stays taken for as long as
 * the work took, so that other work proceeds.
 */
export function pacedLimiter(limits: Limits) {
  const limiter = new Limiter(limits);
  return <T>(ownerNo: number, work: () => Promise<T>): Promise<T> =>
    limiter.run(ownerNo, async () => {
      const began = performance.now();
      try {
        return await work();
      } finally {
        await sleep(performance.now() - began);
      }
    });
}
