/** Too much work is queued. Nothing was done: retry later. */
export class BusyError extends Error {
  constructor(
    message: string,
    /** The owner uses its whole share, and other owners' work could start. */
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

interface Owner {
  active: number;
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
   * Runs `work` when its owner has a free slot.
   *
   * @param timeoutMs longest time in the queue
   * @throws BusyError when the owner's queue is full or the timeout passed
   */
  async run<T>(
    ownerNo: number,
    work: () => Promise<T>,
    timeoutMs = this.limits.timeoutMs,
  ): Promise<T> {
    const owner = this.owners.get(ownerNo) ?? { active: 0, waiting: new Set() };
    this.owners.set(ownerNo, owner);
    try {
      if (this.hasRoom(owner)) this.begin(owner);
      else await this.turn(owner, timeoutMs);
      try {
        return await work();
      } finally {
        this.end(owner);
      }
    } finally {
      if (owner.active === 0 && owner.waiting.size === 0) this.owners.delete(ownerNo);
    }
  }

  private hasRoom(owner: Owner): boolean {
    return this.active < this.limits.total && owner.active < this.limits.perOwner;
  }

  private busy(owner: Owner, message: string): BusyError {
    const { total, perOwner } = this.limits;
    return new BusyError(message, owner.active >= perOwner && this.active < total);
  }

  private begin(owner: Owner): void {
    this.active += 1;
    owner.active += 1;
  }

  private turn(owner: Owner, timeoutMs: number): Promise<void> {
    if (owner.waiting.size >= this.limits.maxWaiting)
      return Promise.reject(this.busy(owner, 'the queue is full'));
    return new Promise((resolve, reject) => {
      const serve = (): void => {
        clearTimeout(timer);
        owner.waiting.delete(serve);
        this.begin(owner);
        resolve();
      };
      const timer = setTimeout(() => {
        owner.waiting.delete(serve);
        reject(this.busy(owner, 'no slot became free within the timeout'));
      }, timeoutMs);
      owner.waiting.add(serve);
    });
  }

  private end(owner: Owner): void {
    this.active -= 1;
    owner.active -= 1;
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
