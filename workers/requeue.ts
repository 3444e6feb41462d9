import { repeat } from '#runtime/concurrency';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import { logRarely } from '#runtime/process/log';
import { MAX_IDS_PER_JOB } from '#runtime/queue/backend';
import type { AdmitQueue } from '#runtime/queue/queues';
import { isAnythingPending, pendingOlderThan, type PendingPlace } from '#sql/admissions/outcomes';
import type { Db } from '#sql/db/transaction';
import { type PendingRevocation, revocationsOlderThan } from '#sql/lifecycle/revocations';
import type { AdmitContext } from './admit/context.js';
import type { AdmissionGroups } from './admit/groups.js';
import { firstOf } from './admit/process.js';

/** Ids per page. A page of revocations is one job. */
export const PAGE_SIZE = MAX_IDS_PER_JOB;

interface RequeueOptions {
  everyMs: number;
  /** Milliseconds that an item may wait before it is stale. */
  olderThanMs: number;
  pageSize: number;
  /** Whether the queue is down and takes no jobs. */
  isDown: () => boolean;
  take: AdmissionGroups['take'];
  /** Requeues lost chunks. Never rejects. */
  chunks: () => Promise<void>;
}

/**
 * Requeues a page of stale admissions, a page of stale revocations and the lost chunks every `everyMs` milliseconds
 * until the signal aborts. While nothing is pending, each search is one statement.
 */
export async function keepRequeueing(
  { sql, log, metrics }: Pick<AdmitContext, 'sql' | 'log' | 'metrics'>,
  queue: Pick<AdmitQueue, 'addRevocations'>,
  { everyMs, olderThanMs, pageSize, isDown, take, chunks }: RequeueOptions,
  signal: AbortSignal,
): Promise<void> {
  const failed = (kind: string) => (error: unknown) =>
    logRarely(log, 'warn', { err: error }, `${kind} requeue failed; it is retried`);
  let afterAdmission: PendingPlace | null = null;
  let afterRevocation: PendingRevocation | null = null;
  /** The announcement was lost, or an earlier group failed. Counts the admissions that no group has yet. */
  const admissions = async (): Promise<void> => {
    const stale = await pendingOlderThan(sql, olderThanMs, pageSize, afterAdmission);
    afterAdmission = nextPlace(stale, pageSize);
    const taken = takePage(take, stale);
    metrics?.requeued('admissions', taken.length);
    if (taken.length === 0) return;
    // The engine's log lines map these proof ids to request ids.
    const first = firstOf(taken, NO_REQUEST_IDS);
    logRarely(log, 'warn', { admissions: taken.length, first }, 'stale admissions requeued');
  };
  const revocations = async (): Promise<void> => {
    if (isDown()) return;
    const stale = await revocationsOlderThan(sql, olderThanMs, pageSize, afterRevocation);
    metrics?.requeued('revocations', stale.length);
    if (stale.length > 0) {
      await queue.addRevocations(stale.map(({ requestId }) => requestId));
      logRarely(log, 'warn', { revocations: stale.length }, 'stale revocations requeued');
    }
    afterRevocation = nextPlace(stale, pageSize);
  };
  const search = async (): Promise<void> => {
    if (!(await isAnythingPending(sql))) return;
    await Promise.all([
      admissions().catch(failed('admission')),
      revocations().catch(failed('revocation')),
      chunks(),
    ]);
  };
  await repeat(everyMs, signal, search, failed('admission'));
}

export async function takePending(sql: Db, take: AdmissionGroups['take']): Promise<void> {
  let after: PendingPlace | null = null;
  do {
    const page = await pendingOlderThan(sql, 0, PAGE_SIZE, after);
    takePage(take, page);
    after = nextPlace(page, PAGE_SIZE);
  } while (after !== null);
}

/** Passes the owners as in an announcement, so that the groups rotate over the tenants. */
function takePage(take: AdmissionGroups['take'], page: readonly PendingPlace[]): string[] {
  const ids = page.map(({ proofId }) => proofId);
  const owners = page.map(({ tenantNo }) => String(tenantNo));
  return take(ids, NO_REQUEST_IDS, owners);
}

/** The position of the next page; null after the last page. */
export const nextPlace = <P>(page: P[], limit: number): P | null =>
  page.length < limit ? null : (page.at(-1) ?? null);
