import { Limiter } from '#runtime/concurrency/limiter';

export interface ReadLimits {
  /** A read waits at most this many milliseconds for a slot. */
  timeoutMs?: number;
  /** Maximum number of concurrent requests for lookups; requests of the poller are not limited. */
  concurrency?: number;
  /** Maximum number of queued reads; further reads fail at once. */
  maxQueue?: number;
}

const TIMEOUT_MS = 5_000;
const CONCURRENCY = 32;
const MAX_QUEUE = 1024;

/** Runs the reads of a remote snapshot. Lookups of the same file share a request, which waits for a slot. */
export function lookupReads(limits: ReadLimits) {
  const { timeoutMs = TIMEOUT_MS, concurrency = CONCURRENCY, maxQueue = MAX_QUEUE } = limits;
  // When the origin hangs, a lookup waits at most once for a slot and once for its own request.
  const limiter = new Limiter({
    total: concurrency,
    perOwner: concurrency,
    maxWaiting: maxQueue,
    timeoutMs,
  });
  const inFlight = new Map<string, Promise<Uint8Array | null>>();
  return (
    path: string,
    isUrgent: boolean,
    fetchIt: () => Promise<Uint8Array | null>,
  ): Promise<Uint8Array | null> => {
    if (isUrgent) return fetchIt();
    let fetching = inFlight.get(path);
    if (fetching === undefined) {
      fetching = limiter.run(0, fetchIt).finally(() => inFlight.delete(path));
      inFlight.set(path, fetching);
    }
    return fetching;
  };
}
