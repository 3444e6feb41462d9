import { repeat } from '#runtime/concurrency';
import { NO_REQUEST_IDS } from '#runtime/http/request-ids';
import { logRarely, type Logger } from '#runtime/process/log';
import { MAX_IDS_PER_JOB } from '#runtime/queue/backend';
import type { AdmitQueue } from '#runtime/queue/queues';
import { isAnythingPending, pendingOlderThan, type PendingPlace } from '#sql/admissions/outcomes';
import type { Db } from '#sql/db/transaction';
import { type PendingRevocation, revocationsOlderThan } from '#sql/lifecycle/revocations';
import type { AdmitContext, AdmitMetrics } from './admit/context.js';
import type { AdmissionGroups } from './admit/groups.js';
import { firstOf } from './admit/process.js';

interface SearchOptions extends Pick<RequeueOptions, 'olderThanMs' | 'pageSize'> {
  everyMs: number;
  /** Whether the queue is down and takes no jobs. */
  isDown: () => boolean;
  take: AdmissionGroups['take'];
  /** Requeues lost chunks. Never rejects. */
  chunks: () => Promise<void>;
}

/**
 * Requeues stale admissions, revocations and chunks every `everyMs` milliseconds until the signal aborts.
 * While nothing is pending, each search is one statement.
 */
export async function keepRequeueing(
  { sql, log, metrics }: Pick<AdmitContext, 'sql' | 'log' | 'metrics'>,
  queue: AdmitQueue,
  { everyMs, isDown, take, chunks, ...limits }: SearchOptions,
  signal: AbortSignal,
): Promise<void> {
  const failed = (kind: string) => (error: unknown) =>
    logRarely(log, 'warn', { err: error }, `${kind} requeue failed; it is retried`);
  const found = { sql, log, metrics, ...limits };
  let afterAdmission: PendingPlace | null = null;
  let afterRevocation: PendingRevocation | null = null;
  const admissions = async (): Promise<void> => {
    afterAdmission = await requeueStaleAdmissions(found, take, afterAdmission);
  };
  const revocations = async (): Promise<void> => {
    if (isDown()) return;
    afterRevocation = await requeueStaleRevocations(found, queue, afterRevocation);
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
    take(idsOf(page), NO_REQUEST_IDS, ownersOf(page));
    after = nextPlace(page, PAGE_SIZE);
  } while (after !== null);
}

const idsOf = (page: readonly PendingPlace[]): string[] => page.map(({ proofId }) => proofId);

/** The owners as in an announcement, so that the groups rotate over the tenants. */
const ownersOf = (page: readonly { tenantNo: number }[]): string[] =>
  page.map(({ tenantNo }) => String(tenantNo));

/** Ids per page. A page of revocations is one job. */
export const PAGE_SIZE = MAX_IDS_PER_JOB;

export interface RequeueOptions {
  sql: Db;
  log: Logger;
  metrics?: AdmitMetrics | undefined;
  /** Milliseconds that an item may wait before it is stale. */
  olderThanMs: number;
  pageSize: number;
}

/**
 * Passes a page of stale admissions to the groups: the announcement was lost, or an earlier group
 * failed. Counts the admissions that no group has yet. Returns the position of the next page; null
 * after the last page.
 */
export async function requeueStaleAdmissions(
  { sql, log, metrics, olderThanMs, pageSize }: RequeueOptions,
  take: AdmissionGroups['take'],
  after: PendingPlace | null = null,
): Promise<PendingPlace | null> {
  const stale = await pendingOlderThan(sql, olderThanMs, pageSize, after);
  const taken = take(idsOf(stale), NO_REQUEST_IDS, ownersOf(stale));
  metrics?.requeued('admissions', taken.length);
  if (taken.length > 0) {
    // The engine's log lines map these proof ids to request ids.
    const first = firstOf(taken, NO_REQUEST_IDS);
    logRarely(log, 'warn', { admissions: taken.length, first }, 'stale admissions requeued');
  }
  return nextPlace(stale, pageSize);
}

/** Requeues a page of stale revocations. A failing request does not block later pages. */
async function requeueStaleRevocations(
  { sql, log, metrics, olderThanMs, pageSize }: RequeueOptions,
  queue: Pick<AdmitQueue, 'addRevocations'>,
  after: PendingRevocation | null = null,
): Promise<PendingRevocation | null> {
  const stale = await revocationsOlderThan(sql, olderThanMs, pageSize, after);
  metrics?.requeued('revocations', stale.length);
  if (stale.length > 0) {
    await queue.addRevocations(stale.map(({ requestId }) => requestId));
    logRarely(log, 'warn', { revocations: stale.length }, 'stale revocations requeued');
  }
  return nextPlace(stale, pageSize);
}

/** The position of the next page; null after the last page. */
export const nextPlace = <P>(page: P[], limit: number): P | null =>
  page.length < limit ? null : (page.at(-1) ?? null);
