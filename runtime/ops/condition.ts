import { withTimeout } from '../within.js';

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
