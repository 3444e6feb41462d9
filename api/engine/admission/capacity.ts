import { pendingDepth } from '#sql/admissions/outcomes';
import type { EngineContext } from '../context.js';
import { Problem, retryAfter } from '../http/problem.js';

const COUNT_EVERY_MS = 500;
/** Age at which a count is no longer used. */
const STALE_MS = 2_000;

/**
 * Limits the queue by a count that requests trigger in the background: under load no request waits
 * for it, and an idle engine runs no queries. Arrivals between two counts may exceed the limit.
 * A failed count rejects nothing: the insert decides whether an admission is durable.
 */
export function createCapacityCheck({
  sql,
  log,
  maxQueuedAdmissions,
}: Pick<EngineContext, 'sql' | 'log' | 'maxQueuedAdmissions'>): () => Promise<void> {
  let countedAt = -Infinity;
  let isFull = false;
  let counting: Promise<void> | null = null;

  async function count(): Promise<void> {
    try {
      isFull = (await pendingDepth(sql, maxQueuedAdmissions)) >= maxQueuedAdmissions;
    } catch (error) {
      isFull = false;
      log.warn({ err: error }, 'queue depth unknown, admissions are accepted without a limit');
    }
    countedAt = performance.now();
    counting = null;
  }

  return async () => {
    const age = performance.now() - countedAt;
    if (age > COUNT_EVERY_MS) {
      counting ??= count();
      if (age > STALE_MS) await counting;
    }
    if (isFull) throw queueFull();
  };
}

export function queueFull(): Problem {
  return new Problem(
    'queue_too_deep',
    'The queue of undecided admissions is full. Nothing was accepted. Send the request again after Retry-After.',
    retryAfter(2),
  );
}
