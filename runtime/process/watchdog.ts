/** What was begun neither ends nor goes on, though every wait in it should have a limit of its own. */
export class HungError extends Error {
  override readonly name = 'HungError';
}

const LOOK_EVERY_MS = 1_000;

export interface WatchdogOptions {
  /** Who is watched, for the message. */
  what: string;
  /** For so long it may neither end nor go on. */
  limitMs: number;
  /** A number that is another one when it goes on; without it, it has to end. */
  progress?: () => number;
  /** Called once. */
  onHung: (error: HungError) => void;
}

/**
 * Sees that work which began ends, or at least goes on. Each wait in it has a limit of its own; this is
 * for the one that turns out to have none, after which a program would be up and do nothing.
 *
 * Counted is time in which this process ran: one that was stopped or asleep did not hang.
 */
export class Watchdog {
  private isUnderWay = false;
  private quietMs = 0;
  private last = 0;
  private readonly timer: NodeJS.Timeout;

  constructor({ what, limitMs, progress = () => 0, onHung }: WatchdogOptions) {
    const everyMs = Math.min(LOOK_EVERY_MS, limitMs);
    this.timer = setInterval(() => {
      const now = progress();
      this.quietMs = this.isUnderWay && now === this.last ? this.quietMs + everyMs : 0;
      this.last = now;
      if (this.quietMs < limitMs) return;
      this.stop();
      const seconds = String(limitMs / 1000);
      onHung(new HungError(`${what} has not gone on for ${seconds} s: something in it never ends`));
    }, everyMs);
  }

  began(): void {
    this.isUnderWay = true;
    this.quietMs = 0;
  }

  ended(): void {
    this.isUnderWay = false;
  }

  stop(): void {
    clearInterval(this.timer);
  }
}

/** The same for pieces of work of which several are under way at a time: the oldest of them has to end. */
export class TaskWatchdog {
  private readonly underWay = new Set<number>();
  private begun = 0;
  private readonly watchdog: Watchdog;

  constructor(options: Omit<WatchdogOptions, 'progress'>) {
    const oldest = (): number => {
      const [first = -1] = this.underWay;
      return first;
    };
    this.watchdog = new Watchdog({ ...options, progress: oldest });
  }

  async watch<T>(work: () => Promise<T>): Promise<T> {
    const piece = (this.begun += 1);
    if (this.underWay.size === 0) this.watchdog.began();
    this.underWay.add(piece);
    try {
      return await work();
    } finally {
      this.underWay.delete(piece);
      if (this.underWay.size === 0) this.watchdog.ended();
    }
  }

  stop(): void {
    this.watchdog.stop();
  }
}
