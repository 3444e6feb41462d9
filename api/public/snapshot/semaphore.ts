export interface SemaphoreOptions {
  /** Maximum concurrency. */
  limit: number;
  /** Maximum queue length; further callers are rejected at once. */
  maxQueue: number;
  /** A caller that waited longer than this is rejected when it reaches the front. */
  maxWaitMs: number;
  /** The error for rejected callers. */
  busy: () => Error;
}

/**
 * Limits concurrent requests to the origin. When the origin hangs, a caller waits at most `maxWaitMs`
 * plus one request, however long the queue is.
 */
export class Semaphore {
  private running = 0;
  private readonly waiting: { since: number; enter: () => void; leave: (why: Error) => void }[] =
    [];

  constructor(private readonly options: SemaphoreOptions) {}

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.running < this.options.limit) this.running++;
    else await this.acquire();
    try {
      return await work();
    } finally {
      this.release();
    }
  }

  private acquire(): Promise<void> {
    if (this.waiting.length >= this.options.maxQueue) return Promise.reject(this.options.busy());
    return new Promise((enter, leave) => {
      this.waiting.push({ since: performance.now(), enter, leave });
    });
  }

  /** Passes the permit to the first caller that has not waited too long. */
  private release(): void {
    const now = performance.now();
    for (let first = this.waiting.shift(); first !== undefined; first = this.waiting.shift()) {
      if (now - first.since <= this.options.maxWaitMs) {
        first.enter();
        return;
      }
      first.leave(this.options.busy());
    }
    this.running--;
  }
}
