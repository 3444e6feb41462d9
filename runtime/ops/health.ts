import { singleFlight, withTimeout } from '../concurrency.js';

export type Condition = 'up' | 'down';

/** Limit of a check, which takes milliseconds when the dependency is healthy. */
const TIMEOUT_MS = 1_000;

/**
 * Reports whether a dependency answers in time. Calls share one pending check, so that frequent
 * probes do not pile up behind a hanging check.
 */
export function healthCheck(ask: () => PromiseLike<unknown>): () => Promise<Condition> {
  const check = singleFlight(async () => ask());
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
