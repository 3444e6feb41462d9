import type { MetricObjectWithValues, MetricValue } from 'prom-client';
import { withTimeout } from '../concurrency/promises.js';

export type Condition = 'up' | 'down';

/** A statement or a ping takes milliseconds; one that takes longer helps nobody. */
const TIMEOUT_MS = 1_000;

/**
 * Whether something answers in time. What hangs is asked once at a time, however often somebody
 * wants to know: probes that come every second must not pile up behind it.
 */
export function healthCheck(ask: () => PromiseLike<unknown>): () => Promise<Condition> {
  let asking: Promise<unknown> | null = null;
  const begin = async (): Promise<unknown> => {
    try {
      return await ask();
    } finally {
      asking = null;
    }
  };
  return () => {
    asking ??= begin();
    return withTimeout(asking, TIMEOUT_MS, () => new Error('no answer in time')).then(
      () => 'up',
      () => 'down',
    );
  };
}

export type HeartbeatState = 'up' | 'failing' | 'stalled';

/** Whether something that has to happen again and again still does, and how it went last. */
export class Heartbeat {
  private readonly beganAt = performance.now();
  private goodAt: number | null = null;
  private isFailing = false;

  /** @param stalledAfterMs without a good end for so long, it does not go on */
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

/** One metric with its values of the moment, as it can be sent from one process to another. */
export type MetricOfMoment = MetricObjectWithValues<MetricValue<string>> & {
  /** How values of several processes become one. */
  aggregator?: string;
};

/** Whether a program can do its work, and what it says of that: no secret, tenant, id or payload. */
export interface Readiness {
  ready: boolean;
  says: Readonly<Record<string, unknown>>;
}

/** What an operator can ask of a program. Neither answer may rest on anything that can hang. */
export interface OpsSource {
  metrics(): Promise<MetricOfMoment[]>;
  readiness(): Promise<Readiness>;
}
