import { randomBytes } from 'node:crypto';
import { coalesce, Limiter } from '#runtime/concurrency';
import { acceptIntake, type IntakeItem, type IntakeOutcome } from '#sql/admissions/intake';
import { isLockTimeout, isUnavailable, PolicyMissingError } from '#sql/db/errors';
import { pendingDepth } from '#sql/admissions/pending';
import { storeTraces } from '#sql/ops/traces';
import { logRarely } from '#runtime/process/log';
import type { EngineContext } from '../context.js';
import { newUuidHex } from '#sql/db/columns';
import { Problem } from '../http/problem.js';

export type Submission = Omit<IntakeItem, 'proofId' | 'seed'> & {
  /** Request id, for the worker's log lines. */
  requestId: string;
  /** Trace context for the spans of worker, verifier and publisher; null when the request is not sampled. */
  traceparent: string | null;
};

/** Resolves once the admission is durable in the registry, even if its announcement fails. */
export type Submit = (submission: Submission) => Promise<IntakeOutcome>;

type Unseeded = Submission & { proofId: string };

const SEED_BYTES = 32;

/**
 * How long a single admission waits for more admissions to share its transaction: clients often send several at once.
 */
const ALONE_MS = 2;

/** A group of this size is submitted without a wait for further admissions. */
const ENOUGH_ITEMS = 16;

/** One group commits while the next gathers admissions: concurrent commits would make groups smaller and cost more. */
const MAX_RUNNING_GROUPS = 1;

/**
 * Longest wait of a group for a lock, for example while a batch with the same item commits. After
 * the timeout the items are submitted one by one, so that one tenant's lock does not delay other
 * tenants.
 */
const groupLockTimeoutMs = (): number => 20;

/** Longest wait of an admission for locks and connections, retries included. */
const TIMEOUT_MS = 10_000;

/**
 * Limit for each tenant on undecided admissions that this engine accepted in the last `waitMs`: a tenant that sends
 * faster than workers decide, for example because its policies are slow, fills the queue of all tenants only slowly.
 */
export const MOST_UNDECIDED = 2_000;

/** First retry after a lock timeout: a transaction for each admission, with the group's short lock timeout. */
const SINGLE = { total: 3, perOwner: 2, maxWaiting: 1_000, timeoutMs: TIMEOUT_MS };
/** Second retry: a transaction for each admission, which waits for the lock until the deadline. */
const LOCKED = { total: 4, perOwner: 2, maxWaiting: 1_000, timeoutMs: TIMEOUT_MS };

/**
 * Makes admissions durable. Concurrent admissions share one statement and one announcement. If a group
 * fails, its items are retried one by one, unless the database is unavailable. After a lock timeout
 * the items of the group, and new items of the blocked tenant, use single transactions.
 */
export function createSubmit(ctx: EngineContext): Submit {
  async function run(unseeded: Unseeded[], lockTimeoutMs: () => number): Promise<IntakeOutcome[]> {
    const seeds = randomBytes(unseeded.length * SEED_BYTES);
    const items = unseeded.map((item, i) => ({
      ...item,
      seed: seeds.subarray(i * SEED_BYTES, (i + 1) * SEED_BYTES),
    }));
    const outcomes = await acceptIntake(ctx.sql, items, lockTimeoutMs);
    // COMMIT POINT of the acceptance: the admissions are durable, so the response does not depend on
    // their announcement.
    const accepted = unseeded.filter((_, i) => outcomes[i]?.outcome === 'accepted');
    if (accepted.length > 0) announce(accepted);
    return outcomes;
  }
  function announce(accepted: Unseeded[]): void {
    const proofIds = accepted.map(({ proofId }) => proofId);
    const requestIds = accepted.map(({ requestId }) => requestId);
    const tenants = accepted.map(({ tenantNo }) => tenantNo);
    void wakeWorkers(
      ctx,
      keepTraces(ctx, accepted).then(() => ctx.announce(proofIds, requestIds, tenants)),
      'admissions are delayed until a worker requeues stale admissions',
      { admissions: proofIds.length },
    );
  }
  const submitTogether = coalesce<Unseeded, IntakeOutcome>({
    maxWaitMs: ctx.coalesceMs,
    aloneMs: ALONE_MS,
    maxItems: ctx.coalesceItems,
    enoughItems: ENOUGH_ITEMS,
    maxRunning: MAX_RUNNING_GROUPS,
    isRetryAlone: (error) =>
      !isUnavailable(error) && !isLockTimeout(error) && !(error instanceof PolicyMissingError),
    run: (items) => run(items, groupLockTimeoutMs),
  });
  const single = new Limiter(SINGLE);
  const locked = new Limiter(LOCKED);
  /** Number of admissions that use the limiter `locked`, by tenant. */
  const waiting = new Map<number, number>();

  async function submitSingly(item: Unseeded, deadline: number): Promise<IntakeOutcome> {
    const { tenantNo } = item;
    // At least 1: for PostgreSQL 0 means no limit.
    const leftMs = (): number => Math.max(1, Math.ceil(deadline - performance.now()));
    try {
      return await single.run(tenantNo, () => runOne(item, groupLockTimeoutMs), leftMs());
    } catch (error) {
      if (!isLockTimeout(error)) throw error;
    }
    waiting.set(tenantNo, (waiting.get(tenantNo) ?? 0) + 1);
    try {
      return await locked.run(tenantNo, () => runOne(item, leftMs), leftMs());
    } finally {
      const left = (waiting.get(tenantNo) ?? 1) - 1;
      if (left === 0) waiting.delete(tenantNo);
      else waiting.set(tenantNo, left);
    }
  }

  async function runOne(item: Unseeded, lockTimeoutMs: () => number): Promise<IntakeOutcome> {
    const [outcome] = await run([item], lockTimeoutMs);
    if (outcome === undefined) throw new Error(`admission ${item.proofId} has no outcome`);
    return outcome;
  }

  async function submit(submission: Submission): Promise<IntakeOutcome> {
    const item = { ...submission, proofId: newUuidHex() };
    const deadline = performance.now() + TIMEOUT_MS;
    if (waiting.has(item.tenantNo)) return submitSingly(item, deadline);
    try {
      return await submitTogether(item);
    } catch (error) {
      if (!isLockTimeout(error)) throw error;
      return submitSingly(item, deadline);
    }
  }

  /** Number of admissions that wait for their decisions, by tenant. */
  const undecided = new Map<number, number>();

  return async (submission) => {
    const { tenantNo } = submission;
    const own = undecided.get(tenantNo) ?? 0;
    if (own >= MOST_UNDECIDED) throw new Problem('queue_too_deep', { isTenantLimit: true });
    undecided.set(tenantNo, own + 1);
    const end = (): void => {
      const left = undecided.get(tenantNo)! - 1;
      if (left === 0) undecided.delete(tenantNo);
      else undecided.set(tenantNo, left);
    };
    const intake = await submit(submission).catch((error: unknown) => {
      end();
      throw error;
    });
    if (intake.outcome === 'accepted') {
      const admission = { tenantNo, id: intake.proofId };
      // Counts the admission until its decision or the timeout, even if the client disconnects: a client must not evade
      // the limit by disconnecting.
      void ctx.admissionOutcomes.wait(admission, { timeoutMs: ctx.waitMs }).then(end);
    } else end();
    return intake;
  };
}

/** Sends a job to the workers, as a best effort: they poll the registry as well, so a lost job only causes a delay. */
export async function wakeWorkers(
  { log }: Pick<EngineContext, 'log'>,
  sending: Promise<unknown>,
  consequence: string,
  fields: Record<string, unknown>,
): Promise<void> {
  try {
    await sending;
  } catch (error) {
    logRarely(log, 'warn', { err: error, ...fields }, `queue unavailable, ${consequence}`);
  }
}

/** Stores the trace contexts of sampled admissions; a failure loses only spans. */
export async function keepTraces(
  { sql, log }: Pick<EngineContext, 'sql' | 'log'>,
  accepted: readonly { proofId: string; traceparent: string | null }[],
): Promise<void> {
  const traces = accepted.flatMap(({ proofId, traceparent }) =>
    traceparent === null ? [] : [{ proofId, traceparent }],
  );
  if (traces.length === 0) return;
  await storeTraces(sql, traces).catch((error: unknown) => {
    logRarely(log, 'warn', { err: error }, 'tracing: trace contexts were not stored');
  });
}

const COUNT_EVERY_MS = 500;
/** Age from which the limiter ignores a count of the queue. */
const STALE_MS = 2_000;

/**
 * Limits the queue by a count that requests refresh in the background: under load no request waits
 * for the count, and an idle engine runs no queries. Arrivals between two counts may exceed the
 * limit. A failed count rejects nothing: the insert decides whether an admission is durable.
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
    if (isFull) throw new Problem('queue_too_deep');
  };
}
