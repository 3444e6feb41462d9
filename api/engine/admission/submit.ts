import { randomBytes } from 'node:crypto';
import { coalesce } from '#runtime/coalesce';
import { acceptIntake, type IntakeItem, type IntakeOutcome } from '#sql/intake';
import { isUnavailable, PolicyMissingError } from '#sql/errors';
import type { EngineContext } from '../context.js';
import { newUuidHex } from '../http/new-id.js';

/** One admission before it has an identity of its own. */
export type Submission = Omit<IntakeItem, 'proofId' | 'salt'>;

export interface Submit {
  /** Resolves once the admission is durable in the registry, whatever becomes of the queue. */
  (submission: Submission): Promise<IntakeOutcome>;
}

/** Two, so that one gathers while the other commits; more only makes them smaller. */
const GROUPS_AT_ONCE = 2;

/**
 * Admissions in flight together travel together: one transaction makes them durable and one job
 * wakes a worker for all. When a group fails, its items are tried alone, so that the culprit's
 * neighbours are answered; not so when the database is away, where that would only multiply.
 */
export function createSubmit(ctx: EngineContext): Submit {
  const run = async (items: IntakeItem[]): Promise<IntakeOutcome[]> => {
    const outcomes = await acceptIntake(ctx.sql, items);
    // From here the admissions are durable: the answer no longer depends on the queue.
    const accepted = outcomes.flatMap((one) => (one.outcome === 'accepted' ? [one.proofId] : []));
    if (accepted.length > 0) void enqueue(ctx, accepted);
    return outcomes;
  };
  const isRetryAlone = (error: unknown): boolean =>
    !isUnavailable(error) && !(error instanceof PolicyMissingError);
  const submit = coalesce<IntakeItem, IntakeOutcome>({
    maxWaitMs: ctx.coalesceMs,
    maxItems: ctx.coalesceItems,
    maxRunning: GROUPS_AT_ONCE,
    isRetryAlone,
    run,
  });
  return (submission) => submit({ ...submission, proofId: newUuidHex(), salt: randomBytes(32) });
}

/** A queue that is away costs time, never an admission: the sweeper enqueues what was not. */
async function enqueue(ctx: EngineContext, proofIds: string[]): Promise<void> {
  try {
    await ctx.queue.add(proofIds);
  } catch (error) {
    ctx.log.warn({ err: error, admissions: proofIds.length }, 'the queue cannot be reached');
  }
}
