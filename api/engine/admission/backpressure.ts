import type { Logger } from '#runtime/process/log';
import type { Db } from '#sql/db/transaction';
import { pendingDepth } from '#sql/admissions/outcomes';
import { Problem } from '../http/problem.js';

export interface Backpressure {
  /** 503 while more is accepted than the workers keep up with. */
  requireCapacity(): Promise<void>;
}

export interface BackpressureOptions {
  sql: Db;
  log: Pick<Logger, 'warn'>;
  /** Admissions accepted and not yet settled, of all tenants, from which on no more are accepted. */
  maxQueuedAdmissions: number;
}

const ASK_EVERY_MS = 500;
/** What was found so long ago says nothing about now. */
const STALE_MS = 2_000;
const RETRY_AFTER_S = '2';

/**
 * Knows how deep the queue is from a count that its own traffic has made in the background: under
 * load no request waits for one, and an idle engine asks nothing. So the limit is held to within
 * what arrives between two counts. When the count fails nobody is refused for it: whether an
 * admission can be made durable is for the insert to find out.
 */
export function createBackpressure(options: BackpressureOptions): Backpressure {
  const { sql, log, maxQueuedAdmissions } = options;
  let foundAt = -Infinity;
  let isTooDeep = false;
  let asking: Promise<void> | null = null;

  async function ask(): Promise<void> {
    try {
      isTooDeep = (await pendingDepth(sql, maxQueuedAdmissions)) >= maxQueuedAdmissions;
    } catch (error) {
      isTooDeep = false;
      log.warn({ err: error }, 'the depth of the queue cannot be read');
    }
    foundAt = performance.now();
    asking = null;
  }

  return {
    async requireCapacity() {
      const age = performance.now() - foundAt;
      if (age > ASK_EVERY_MS) {
        asking ??= ask();
        if (age > STALE_MS) await asking;
      }
      if (isTooDeep) throw tooDeep();
    },
  };
}

/** 503 */
export function tooDeep(): Problem {
  return new Problem(
    'queue_too_deep',
    'More is waiting than can be settled soon. Nothing was accepted; send it again later.',
    { headers: { 'Retry-After': RETRY_AFTER_S } },
  );
}
