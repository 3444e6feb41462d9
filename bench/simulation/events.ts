const SLICE_MS = 5;

export type Callback = () => void;

export class Clock {
  now = 0;
  /** Sorted with the next event last. Events at the same time run in the order in which they were added. */
  private readonly events: { at: number; run: Callback }[] = [];

  after(ms: number, run: Callback): void {
    const at = this.now + ms;
    let [low, high] = [0, this.events.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.events[middle]!.at > at) low = middle + 1;
      else high = middle;
    }
    this.events.splice(low, 0, { at, run });
  }

  runUntil(end: number): void {
    for (let next = this.events.pop(); next !== undefined; next = this.events.pop()) {
      if (next.at > end) return;
      this.now = next.at;
      next.run();
    }
  }
}

/** Models a process, its threads, a lock or the cores: runs `width` tasks at a time, in the order of arrival. */
export class Server {
  busyMs = 0;
  private running = 0;
  private readonly waiting: { ms: number; done: Callback }[] = [];

  /** @param cores on which the tasks run; null if each task has its own core */
  constructor(
    private readonly clock: Clock,
    private readonly cores: Server | null,
    readonly name: string,
    readonly width = 1,
  ) {}

  get isFree(): boolean {
    return this.running < this.width;
  }

  run(ms: number, done: Callback): void {
    this.waiting.push({ ms, done });
    this.next();
  }

  private next(): void {
    const task = this.isFree ? this.waiting.shift() : undefined;
    if (task === undefined) return;
    this.running += 1;
    this.work(task.ms, () => {
      this.running -= 1;
      this.busyMs += task.ms;
      task.done();
      this.next();
    });
  }

  /** Works in slices, so that a long task does not keep a core. */
  private work(ms: number, done: Callback): void {
    if (this.cores === null) return this.clock.after(ms, done);
    const rest = ms - SLICE_MS;
    this.cores.run(Math.min(ms, SLICE_MS), rest > 0 ? () => this.work(rest, done) : done);
  }
}

/** Numbers in [0, 1) that follow from the seed (mulberry32). */
export function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
