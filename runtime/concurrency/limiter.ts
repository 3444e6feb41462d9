import { setTimeout as sleep } from 'node:timers/promises';

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
