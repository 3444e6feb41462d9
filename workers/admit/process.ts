import { ZodError } from 'zod';
import { IntakeMismatchError } from '#policy/decide';
import { ProtocolError } from '#protocol/errors';
import { yieldEvery } from '#runtime/concurrency';
import { NO_REQUEST_IDS, type RequestIds } from '#runtime/http/request-ids';
import {
  ChunkIncompleteError,
  claimPending,
  loadChunks,
  loadPending,
  storeRejections,
  type PendingIntake,
} from '#sql/admissions/pending';
import { announceOutcomes } from '#sql/admissions/outcomes';
import { CHUNK_ITEMS } from '#sql/batches/accept';
import { countOutcomes, splitChunks } from '#sql/batches/chunks';
import { slices } from '#sql/db/columns';
import { transaction, type Transaction } from '#sql/db/transaction';
import {
  append,
  appendCloses,
  appendPrepared,
  commitGroup,
  countOf,
  prepare,
  type Prepared,
  type Appended,
} from './append.js';
import { type AdmitContext, DeferredError } from './context.js';

/**
 * Whether the item caused the error: its stored data is malformed, incomplete or not the accepted request, or the
 * database rejects the data (SQLSTATE classes 22 and 23, and P0001 from a trigger). Every other error concerns the
 * process, the database or the deployment, rejects no item and is retried.
 */
function isItemError(error: unknown): boolean {
  if (error instanceof IntakeMismatchError || error instanceof ChunkIncompleteError) return true;
  if (error instanceof ProtocolError || error instanceof ZodError) return true;
  return /^(22...|23...|P0001)$/.test(String((error as { code?: unknown }).code));
}

type TimedContext = AdmitContext & { startedAt: number };

const YIELD_AFTER_MS = 1;

/**
 * Processes admissions: load → canonicalize → evaluate → hash → sign → append. Skips ids that are unknown, not accepted
 * or committed already, so ids may be announced repeatedly.
 *
 * @param requests request ids from the announcement: untrusted, for log lines only
 * @param prepareMs time after which no more admissions are prepared
 * @returns the ids of the admissions that were not prepared in time
 * @throws DeferredError when only some admissions were committed or failed; otherwise the error itself.
 *   The requeue retries the uncommitted admissions.
 */
export async function processAdmissions(
  base: AdmitContext,
  ids: string[],
  requests: RequestIds = NO_REQUEST_IDS,
  prepareMs = Infinity,
): Promise<string[]> {
  const context = { ...base, startedAt: Date.now() };
  let group: Group = { closes: [], prepared: [], failed: [], left: [] };
  const places = new Map(ids.map((id, at) => [id, at]));
  const deferred: Failed[] = [];
  try {
    // The transaction of the append also loads and locks the admissions, so that other workers skip them.
    const appended = await commitGroup(
      context,
      async (tx, pending) => {
        const inOrder = pending.sort((a, b) => places.get(a.proofId)! - places.get(b.proofId)!);
        group = await prepareAll(context, inOrder, prepareMs);
        return appendPrepared(tx, context, group.prepared);
      },
      (tx: Transaction) => timedLoad(context, loadPending(tx, ids)),
    );
    logOutcomes(context, appended, requests);
  } catch (error) {
    try {
      deferred.push(...(await isolate(context, group.prepared, append, error, requests)));
    } catch (cause) {
      // Does not report admissions for which the group had no time as failed.
      throw group.left.length === 0
        ? cause
        : new DeferredError(ids.length - group.left.length, cause, group.left);
    }
    // An error that no item caused would also fail the rest of the group.
    if (!deferred.every((one) => isItemError(one.error))) throw deferredError(deferred, group.left);
  }
  const { closes, failed } = group;
  for (const { intake, error } of failed) {
    if (isItemError(error)) deferred.push(...(await quarantine(context, intake, error, requests)));
    // If a policy set is unusable, only the admissions that must be decided under this set are deferred.
    else deferred.push({ intake, error });
  }
  // Closes come last, because they may end the runs of other admissions in the group.
  for (const some of slices(closes, CLOSES_AT_ONCE)) {
    try {
      deferred.push(...(await appendOrIsolate(context, some, appendCloses, requests)));
    } catch (error) {
      deferred.push(...some.map(({ intake }) => ({ intake, error })));
    }
  }
  if (deferred.length > 0) throw deferredError(deferred, group.left);
  return group.left;
}

/** Limits the closes of a transaction, which reads all members of the closed runs under the append lock. */
const CLOSES_AT_ONCE = 32;

/**
 * Processes pending chunks of batches, each with all of its admissions or not at all. When single admissions fail, or a
 * chunk has closes of runs, the chunks are split, and their admissions are processed as single admissions.
 *
 * @param chunkIds like `ids` of `processAdmissions`
 */
export async function processChunks(base: AdmitContext, chunkIds: string[]): Promise<void> {
  const context = { ...base, startedAt: Date.now() };
  const pending = await timedLoad(context, loadChunks(context.sql, chunkIds, CHUNK_ITEMS));
  const { closes, prepared, failed } = await prepareAll(context, pending);
  const all = [...prepared, ...failed, ...closes];
  if (all.length === 0) return;
  let error = failed[0]?.error;
  if (failed.length === 0 && closes.length === 0) {
    try {
      logOutcomes(context, await append(context, prepared), NO_REQUEST_IDS);
      return;
    } catch (cause) {
      if (!isItemError(cause)) throw cause;
      error = cause;
    }
  } else if (
    failed.length > 0 &&
    failed.length === all.length &&
    !failed.some((one) => isItemError(one.error))
  ) {
    throw deferredError(failed);
  }
  const chunks = [...new Set(all.flatMap(({ intake }) => intake.chunkId ?? []))];
  const ids = await splitChunks(context.sql, chunks);
  if (error !== undefined) {
    context.log.warn(
      { err: error, chunks, admissions: ids.length },
      'batch chunks failed; their admissions are processed as single admissions',
    );
  }
  await processAdmissions(context, ids);
}

interface Failed {
  intake: PendingIntake;
  error: unknown;
}

const deferredError = (failed: readonly Failed[], left: readonly string[] = []): DeferredError =>
  new DeferredError(failed.length, failed.at(-1)?.error, left);

async function timedLoad(
  { metrics }: AdmitContext,
  loading: Promise<PendingIntake[]>,
): Promise<PendingIntake[]> {
  const loadStart = performance.now();
  const pending = await loading;
  metrics?.took('load', performance.now() - loadStart);
  return pending;
}

interface Group {
  prepared: Prepared[];
  failed: Failed[];
  /** Closes of runs, which are signed under the append lock. */
  closes: Pick<Prepared, 'intake'>[];
  /** Admissions that were not prepared in time. */
  left: string[];
}

async function prepareAll(
  context: AdmitContext,
  pending: PendingIntake[],
  limitMs = Infinity,
): Promise<Group> {
  const loaded = performance.now();
  const left: string[] = [];
  let spentMs = 0;
  const prepared: Prepared[] = [];
  const failed: Failed[] = [];
  const closes: Pick<Prepared, 'intake'>[] = [];
  const yieldIfDue = yieldEvery(YIELD_AFTER_MS);
  for (const intake of pending) {
    // Signing a long job must not block the event loop.
    await yieldIfDue();
    if (spentMs >= limitMs) {
      left.push(intake.proofId);
      continue;
    }
    // Excludes the time of yields, in which another group may work.
    const began = performance.now();
    try {
      if (intake.runCloses === true) {
        // Throws if the policy set of the close is unusable, which defers this close and no other item.
        await context.policy(intake.policyDigest);
        closes.push({ intake });
      } else prepared.push(await prepare(context, intake));
    } catch (error) {
      failed.push({ intake, error });
    }
    spentMs += performance.now() - began;
  }
  context.metrics?.took('prepare', performance.now() - loaded);
  return { prepared, failed, closes, left };
}

/** Error isolation: a failed group is appended item by item, so one bad item rejects only itself. */
async function appendOrIsolate<T extends Pick<Prepared, 'intake'>>(
  context: TimedContext,
  items: T[],
  appendAll: (context: AdmitContext, items: T[]) => Promise<Appended>,
  requests: RequestIds,
): Promise<Failed[]> {
  try {
    logOutcomes(context, await appendAll(context, items), requests);
    return [];
  } catch (error) {
    return isolate(context, items, appendAll, error, requests);
  }
}

/**
 * Retries the items of a group that `error` rolled back. Returns the items that it could neither append nor reject. An
 * error that no item caused ends the retries: it would fail the other items too, so they are returned with this error.
 *
 * @throws an error that no item caused, if no item was committed
 */
async function isolate<T extends Pick<Prepared, 'intake'>>(
  context: TimedContext,
  items: T[],
  appendAll: (context: AdmitContext, items: T[]) => Promise<Appended>,
  error: unknown,
  requests: RequestIds,
): Promise<Failed[]> {
  const [only, ...others] = items;
  if (only === undefined || !isItemError(error)) throw error;
  if (others.length === 0) return quarantine(context, only.intake, error, requests);
  context.log.warn(
    { err: error, items: items.length },
    'append of a group failed; its items are retried one by one',
  );
  const failed: Failed[] = [];
  for (const [at, item] of items.entries()) {
    try {
      failed.push(...(await appendOrIsolate(context, [item], appendAll, requests)));
    } catch (cause) {
      return [...failed, ...items.slice(at).map(({ intake }) => ({ intake, error: cause }))];
    }
  }
  return failed;
}

/**
 * Rejects the item that caused the error: its caller gets a response, and retries end. Returns the item if its data
 * also prevent the rejection, as a false batch count does.
 */
async function quarantine(
  context: AdmitContext,
  intake: PendingIntake,
  error: unknown,
  requests: RequestIds,
): Promise<Failed[]> {
  const { proofId, batch } = intake;
  const detail = error instanceof Error ? error.message : String(error);
  try {
    const isClaimed = await transaction(context.sql, async (tx) => {
      const { size } = await claimPending(tx, [intake]);
      if (size === 0) return false;
      await storeRejections(tx, [{ proofId, code: 'processing_failed', detail }]);
      await countOutcomes(tx, countOf(intake, 'refused'));
      await announceOutcomes(tx, batch === null ? [proofId] : []);
      return true;
    });
    if (!isClaimed) return [];
  } catch (cause) {
    if (!isItemError(cause)) throw cause;
    return [{ intake, error: cause }];
  }
  context.metrics?.committed({ admitted: 0, denied: 0, approval_required: 0, refused: 1 });
  context.log.error(
    { err: error, ...idsOf(proofId, requests), ...(batch !== null && { batch_id: batch.batchId }) },
    'admission quarantined: it is rejected and never signed',
  );
  return [];
}

/** A single admission is late, probably requeued, when it is older than this at its commit. */
const LATE_MS = 2_000;

/** Maximum number of ids in a log line about admissions that failed or were requeued. */
const MAX_LOGGED_IDS = 20;

interface LoggedOutcome {
  intake: PendingIntake;
  code?: string;
  effect?: string;
}

/**
 * Logs the result of a group, not of each admission. Success is logged at debug, because the engine logs the
 * request already; rejected and late admissions are logged with their ids.
 */
function logOutcomes(
  { log, startedAt, ...context }: TimedContext,
  appended: Appended,
  requests: RequestIds,
): void {
  const { admitted, rejected } = appended;
  context.traced?.(
    [
      ...admitted.map(({ intake, effect }) => ({ ...intake, outcome: effect })),
      ...rejected.map(({ intake, code }) => ({ ...intake, outcome: code })),
    ],
    startedAt,
  );
  const fields = (outcomes: readonly LoggedOutcome[]) => ({
    ...logFields(outcomes, requests),
    admissions: outcomes.length,
  });
  if (rejected.length > 0) log.info(fields(rejected), 'admissions rejected before signing');
  const outcomeOf = ({ intake, effect }: Prepared): LoggedOutcome => ({ intake, effect });
  const lateBefore = Date.now() - LATE_MS;
  const late = admitted.filter(
    ({ intake }) => intake.acceptedAt < lateBefore && intake.batch === null,
  );
  if (late.length > 0) log.info(fields(late.map(outcomeOf)), 'admissions committed late');
  if (admitted.length > 0 && log.isLevelEnabled('debug')) {
    log.debug(fields(admitted.map(outcomeOf)), 'admissions committed');
  }
}

/** Lists single admissions by id, and batch items only by batch. */
function logFields(outcomes: readonly LoggedOutcome[], requests: RequestIds) {
  const single: object[] = [];
  const counts = new Map<string, number>();
  for (const { intake, ...rest } of outcomes) {
    const { proofId, batch } = intake;
    if (batch !== null) counts.set(batch.batchId, (counts.get(batch.batchId) ?? 0) + 1);
    else single.push({ ...idsOf(proofId, requests), ...rest });
  }
  return {
    ...(single.length > 0 && { single }),
    ...(counts.size > 0 && {
      batches: [...counts].map(([batch_id, admissions]) => ({ batch_id, admissions })),
    }),
  };
}

function idsOf(proofId: string, requests: RequestIds): { proof_id: string; request_id?: string } {
  const requestId = requests.of(proofId);
  return { proof_id: proofId, ...(requestId !== undefined && { request_id: requestId }) };
}

export function firstOf(proofIds: readonly string[], requests: RequestIds): object[] {
  return proofIds.slice(0, MAX_LOGGED_IDS).map((proofId) => idsOf(proofId, requests));
}
