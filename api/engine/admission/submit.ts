import { randomBytes } from 'node:crypto';
import { coalesce } from '#runtime/coalesce';
import { acceptIntake, type IntakeItem, type IntakeOutcome } from '#sql/intake';
import { isUnavailable, PolicyMissingError } from '#sql/errors';
import type { EngineContext } from '../context.js';
import { newUuidHex } from '../http/new-id.js';

/** One admission before it has an identity of its own. */
export type Submission = Omit<IntakeItem, 'proofId' | 'salt'> & {
  /** Of the request that brings it: the worker names it where it has something to say. */
  requestId: string;
};

type Unsalted = Submission & { proofId: string };

const SALT_BYTES = 32;

export interface Submit {
  /** Resolves once the admission is durable in the registry, whatever becomes of the queue. */
  (submission: Submission): Promise<IntakeOutcome>;
}

/**
 * While one commits, the next one gathers. With more of them groups are smaller, and everything that is
 * done for a group, in three programs, is done more often.
 */
const GROUPS_AT_ONCE = 1;

/**
 * A group with an admission that is in a batch as well waits until that batch is durable; by then the
 * next ones, of whatever tenant, are no longer behind it.
 */
const PATIENCE_MS = 30;

/**
 * Admissions in flight together travel together: one transaction makes them durable and one job
 * wakes a worker for all. When a group fails, its items are tried alone, so that the culprit's
 * neighbours are answered; not so when the database is away, where that would only multiply.
 */
export function createSubmit(ctx: EngineContext): Submit {
  const run = async (unsalted: Unsalted[]): Promise<IntakeOutcome[]> => {
    const salts = randomBytes(unsalted.length * SALT_BYTES);
    const items = unsalted.map((item, i) => ({
      ...item,
      salt: salts.subarray(i * SALT_BYTES, (i + 1) * SALT_BYTES),
    }));
    const outcomes = await acceptIntake(ctx.sql, items);
    // From here the admissions are durable: the answer no longer depends on the queue.
    const accepted: string[] = [];
    const requests: string[] = [];
    for (const [at, one] of outcomes.entries()) {
      if (one.outcome !== 'accepted') continue;
      accepted.push(one.proofId);
      requests.push(unsalted[at]?.requestId ?? '');
    }
    if (accepted.length > 0) void enqueue(ctx, accepted, requests);
    return outcomes;
  };
  const isRetryAlone = (error: unknown): boolean =>
    !isUnavailable(error) && !(error instanceof PolicyMissingError);
  const submit = coalesce<Unsalted, IntakeOutcome>({
    maxWaitMs: ctx.coalesceMs,
    maxItems: ctx.coalesceItems,
    maxRunning: GROUPS_AT_ONCE,
    patienceMs: PATIENCE_MS,
    isRetryAlone,
    run,
  });
  return (submission) => submit({ ...submission, proofId: newUuidHex() });
}

/** A queue that is away costs time, never an admission: the sweeper enqueues what was not. */
async function enqueue(ctx: EngineContext, proofIds: string[], requests: string[]): Promise<void> {
  try {
    await ctx.queue.add(proofIds, requests);
  } catch (error) {
    ctx.log.warn({ err: error, admissions: proofIds.length }, 'the queue cannot be reached');
  }
}
