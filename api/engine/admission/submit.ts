import { randomBytes } from 'node:crypto';
import { coalesce } from '#runtime/concurrency/coalesce';
import { acceptIntake, type IntakeItem, type IntakeOutcome } from '#sql/admissions/accept';
import { isLockTimeout, isUnavailable, PolicyMissingError } from '#sql/db/errors';
import { TenantLimiter } from '#sql/db/tenant-connections';
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
 * How long a group waits for another transaction that brings one of its admissions, such as the same
 * item of a batch. Then its admissions go on apart, so that one tenant's lock delays no other tenant.
 */
const groupLockTimeoutMs = (): number => 20;

/** How long an admission waits for locks, and for the connections of the two stages below, in all. */
const TIMEOUT_MS = 10_000;

/** Admissions that go on apart, each in a transaction of its own. */
const APART = { total: 3, perTenant: 2, maxWaiting: 1_000, timeoutMs: TIMEOUT_MS };
/** Those of them that waited for a lock there too. */
const LOCKED = { total: 4, perTenant: 2, maxWaiting: 1_000, timeoutMs: TIMEOUT_MS };

/**
 * Makes admissions durable. Those in flight share one transaction, and one job wakes a worker for
 * all of them. When a group fails, its items are retried one by one, except when the database is
 * away. When a group waits for a lock, its items go on apart. So do the new ones of a tenant that
 * waits for a lock there.
 */
export function createSubmit(ctx: EngineContext): Submit {
  const run = async (
    unsalted: Unsalted[],
    lockTimeoutMs: () => number,
  ): Promise<IntakeOutcome[]> => {
    const salts = randomBytes(unsalted.length * SALT_BYTES);
    const items = unsalted.map((item, i) => ({
      ...item,
      salt: salts.subarray(i * SALT_BYTES, (i + 1) * SALT_BYTES),
    }));
    const outcomes = await acceptIntake(ctx.sql, items, lockTimeoutMs);
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
    !isUnavailable(error) && !isLockTimeout(error) && !(error instanceof PolicyMissingError);
  const submitTogether = coalesce<Unsalted, IntakeOutcome>({
    maxWaitMs: ctx.coalesceMs,
    maxItems: ctx.coalesceItems,
    maxRunning: GROUPS_AT_ONCE,
    isRetryAlone,
    run: (items) => run(items, groupLockTimeoutMs),
  });
  const apart = new TenantLimiter(APART);
  const locked = new TenantLimiter(LOCKED);
  /** How many admissions of a tenant wait in `locked`. */
  const waiting = new Map<number, number>();

  async function submitApart(item: Unsalted, deadline: number): Promise<IntakeOutcome> {
    const { tenantNo } = item;
    // Postgres reads 0 as no limit.
    const leftMs = (): number => Math.max(1, Math.ceil(deadline - performance.now()));
    try {
      return await apart.run(tenantNo, () => runOne(item, groupLockTimeoutMs), leftMs());
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

  async function runOne(item: Unsalted, lockTimeoutMs: () => number): Promise<IntakeOutcome> {
    const [outcome] = await run([item], lockTimeoutMs);
    if (outcome === undefined) throw new Error('an admission was left without an outcome');
    return outcome;
  }

  return async (submission) => {
    const item = { ...submission, proofId: newUuidHex() };
    const deadline = performance.now() + TIMEOUT_MS;
    if (waiting.has(item.tenantNo)) return submitApart(item, deadline);
    try {
      return await submitTogether(item);
    } catch (error) {
      if (!isLockTimeout(error)) throw error;
      return submitApart(item, deadline);
    }
  };
}

/** A queue that is away costs time, never an admission: the sweeper enqueues what was not. */
async function enqueue(ctx: EngineContext, proofIds: string[], requests: string[]): Promise<void> {
  try {
    await ctx.queue.add(proofIds, requests);
  } catch (error) {
    ctx.log.warn({ err: error, admissions: proofIds.length }, 'the queue cannot be reached');
  }
}
