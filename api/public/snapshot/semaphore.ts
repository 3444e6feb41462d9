export interface LanesOptions {
  /** How many run at a time. */
  width: number;
  /** How many may wait for their turn; more are turned away at once. */
  room: number;
  /** Whoever waited longer than this, in milliseconds, is turned away when its turn comes. */
  patienceMs: number;
  /** What is thrown at those who are turned away. */
  busy: () => Error;
}

/**
 * Keeps a crowd from becoming as many requests to one origin. When the origin hangs, waiting ends
 * after the patience of one and the time of one answer, however many wait.
 */
export class Semaphore {
  private running = 0;
  private readonly waiting: { since: number; enter: () => void; leave: (why: Error) => void }[] =
    [];

  constructor(private readonly options: LanesOptions) {}

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.running < this.options.width) this.running++;
    else await this.turn();
    try {
      return await work();
    } finally {
      this.next();
    }
  }

  private turn(): Promise<void> {
    if (this.waiting.length >= this.options.room) return Promise.reject(this.options.busy());
    return new Promise((enter, leave) => {
      this.waiting.push({ since: performance.now(), enter, leave });
    });
  }

  /** Hands the lane that became free to the first who still wants it. */
  private next(): void {
    const now = performance.now();
    for (let first = this.waiting.shift(); first !== undefined; first = this.waiting.shift()) {
      if (now - first.since <= this.options.patienceMs) {
        first.enter();
        return;
      }
      first.leave(this.options.busy());
    }
    this.running--;
  }
}
