import { setTimeout as sleep } from 'node:timers/promises';
import { withTimeout } from '../concurrency/promises.js';

export interface SampleOptions {
  everyMs: number;
  /** A reading that takes longer has failed. */
  patienceMs?: number;
  onError: (error: unknown) => void;
}

const TIMEOUT_MS = 4_000;

/**
 * Something that has to be asked for, read in the background again and again, so that nobody who
 * looks at it asks anything. What was read is there until the next reading, and not for longer:
 * when that fails, or does not come, there is nothing.
 */
export class Sampled<T> {
  private latest: { value: T; until: number } | null = null;

  /** Null while nothing is known. */
  get value(): T | null {
    const { latest } = this;
    return latest !== null && performance.now() < latest.until ? latest.value : null;
  }

  /** Reads until the signal; resolves when the last reading is over. */
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
