import { SdkError } from '../errors.js';

/** Runs a request, or fails at once while the engine is known to be unreachable. */
export type Breaker = <T>(send: () => Promise<T>) => Promise<T>;

/**
 * A circuit breaker. After a request that did not reach the engine, calls fail at once for `pauseMs`;
 * then one request tries again, and the other requests fail until that request has ended.
 */
export function openBreaker(pauseMs: number): Breaker {
  if (pauseMs === 0) return (send) => send();
  let opened: { until: number; cause: SdkError } | null = null;
  return async (send) => {
    const found = opened;
    if (found !== null && performance.now() < found.until) {
      const message = `the engine was unreachable a moment ago: ${found.cause.message}`;
      throw new SdkError('unavailable', message, { cause: found.cause });
    }
    if (found !== null) found.until = Infinity;
    try {
      const answer = await send();
      opened = null;
      return answer;
    } catch (error) {
      if (isUnreachable(error)) opened = { until: performance.now() + pauseMs, cause: error };
      else if (error instanceof SdkError && error.status !== undefined) opened = null;
      // An aborted request does not show whether the engine is reachable, so the next call tries again.
      else if (found !== null) found.until = 0;
      throw error;
    }
  };
}

/** An error with a proof id comes from an engine that accepted the request and has not decided yet. */
function isUnreachable(error: unknown): error is SdkError {
  return (
    error instanceof SdkError &&
    ['network', 'timeout', 'unavailable'].includes(error.code) &&
    error.proofId === undefined
  );
}
