import { singleFlight, withTimeout } from '../concurrency.js';

export type Condition = 'up' | 'down';

/** Limit of a check, which takes milliseconds when the dependency is healthy. */
const TIMEOUT_MS = 1_000;

/**
 * Reports whether a dependency answers in time. Calls share one pending check, so that frequent
 * probes do not pile up behind a hanging check.
 */
export function healthCheck(query: () => PromiseLike<unknown>): () => Promise<Condition> {
  const check = singleFlight(async () => query());
  return () =>
    withTimeout(check(), TIMEOUT_MS).then(
      () => 'up',
      () => 'down',
    );
}

export type HeartbeatState = 'up' | 'failing' | 'stalled';

/** State of a periodic task: whether it still completes and whether its last run failed. */
export class Heartbeat {
  private readonly beganAt = performance.now();
  private goodAt: number | null = null;
  private isFailing = false;

  /** @param stalledAfterMs time without a success after which the task counts as stalled */
  constructor(private readonly stalledAfterMs: number) {}

  success(): void {
    this.goodAt = performance.now();
    this.isFailing = false;
  }

  failed(): void {
    this.isFailing = true;
  }

  get state(): HeartbeatState {
    if (this.isFailing) return 'failing';
    const since = this.goodAt ?? this.beganAt;
    return performance.now() - since > this.stalledAfterMs ? 'stalled' : 'up';
  }
}

/** Whether a program is ready, with details that are public: no secret, tenant, id or payload. */
export interface Readiness {
  ready: boolean;
  details: Readonly<Record<string, unknown>>;
}

/** Reports ADMISSIONS_PAUSED, a setting of this process that the database does not show. */
export const withPause =
  (isPaused: boolean, find: () => Promise<Readiness>) => async (): Promise<Readiness> => {
    const { ready, details } = await find();
    return { ready, details: isPaused ? { ...details, admissions: 'paused' } : details };
  };

/** A task neither ended nor progressed within its limit. */
export class StallError extends Error {}

const CHECK_EVERY_MS = 1_000;

export interface WatchdogOptions {
  /** Name of the watched task, for the message. */
  task: string;
  /** Time without completion or progress after which the task counts as stalled. */
  limitMs: number;
  /** A number that changes on progress; if absent, the task must end within `limitMs`. */
  progress?: () => number;
  /** Called at most once. */
  onStall: (error: StallError) => void;
}

/**
 * Detects a task that neither ends nor progresses. Every wait should have its own timeout; the
 * watchdog covers waits without a timeout, which would leave the program up but idle.
 *
 * Counts only time in which this process ran, because a suspended process has not stalled.
 */
export class Watchdog {
  private quietMs = 0;
  private last = 0;
  private isStopped = false;
  /** Set only while the task runs, because a timer would wake an idle program. */
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly options: WatchdogOptions) {}

  began(): void {
    this.quietMs = 0;
    if (this.isStopped) return;
    const everyMs = Math.min(CHECK_EVERY_MS, this.options.limitMs);
    this.timer ??= setInterval(() => this.check(everyMs), everyMs).unref();
  }

  ended(): void {
    clearInterval(this.timer);
    this.timer = undefined;
  }

  stop(): void {
    this.isStopped = true;
    this.ended();
  }

  private check(everyMs: number): void {
    const { task, limitMs, progress = () => 0, onStall } = this.options;
    const now = progress();
    this.quietMs = now === this.last ? this.quietMs + everyMs : 0;
    this.last = now;
    if (this.quietMs < limitMs) return;
    this.stop();
    const seconds = String(limitMs / 1000);
    onStall(new StallError(`${task} made no progress for ${seconds} s`));
  }
}

/** A watchdog for concurrent tasks: the oldest task has to end within the limit. */
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
    const id = (this.begun += 1);
    if (this.underWay.size === 0) this.watchdog.began();
    this.underWay.add(id);
    try {
      return await work();
    } finally {
      this.underWay.delete(id);
      if (this.underWay.size === 0) this.watchdog.ended();
    }
  }

  stop(): void {
    this.watchdog.stop();
  }
}
