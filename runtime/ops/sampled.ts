import { setTimeout as sleep } from 'node:timers/promises';
import { withTimeout } from '../concurrency/promises.js';

export interface SampleOptions {
  everyMs: number;
  /** Time after which a reading has failed. */
  patienceMs?: number;
  onError: (error: unknown) => void;
}

const TIMEOUT_MS = 4_000;

/**
 * A value that is read periodically in the background, so that readers never wait for a query. When
 * the next reading fails or is late, the value becomes null instead of stale.
 */
export class Sampled<T> {
  private latest: { value: T; until: number } | null = null;

  /** Null while unknown. */
  get value(): T | null {
    const { latest } = this;
    return latest !== null && performance.now() < latest.until ? latest.value : null;
  }

  /** Reads until the signal fires; resolves when the last reading has ended. */
  async run(read: () => Promise<T>, signal: AbortSignal, options: SampleOptions): Promise<void> {
    const { everyMs, patienceMs = TIMEOUT_MS, onError } = options;
    const lifeMs = everyMs + patienceMs;
    while (!signal.aborted) {
      try {
        const value = await withTimeout(read(), patienceMs, () => new Error('no reading in time'));
        this.latest = { value, until: performance.now() + lifeMs };
      } catch (error) {
        this.latest = null;
        if (!signal.aborted) onError(error);
      }
      await sleep(everyMs, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }
}
