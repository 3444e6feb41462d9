import { setImmediate } from 'node:timers/promises';
import { ZodError } from 'zod';
import { IntakeMismatchError } from '#policy/derive-aep';
import { ProtocolError } from '#protocol/errors';
import { claimPending, loadPending, refuse, type PendingIntake } from '#sql/admissions/append';
import { countOutcomes } from '#sql/batches/chunks';
import { transaction } from '#sql/db/transaction';
import { NO_REQUEST_IDS, type RequestIds } from '#runtime/http/request-ids';
import { append } from './append.js';
import { type AdmitContext, DeferredError, NO_METRICS } from './context.js';
import { prepare, type Prepared } from './prepare.js';
import { idsOf, logOutcomes } from './log-outcomes.js';

/**
 * Whether the item caused the error: the stored intake differs from the accepted one, or the
 * database rejects its data (SQLSTATE classes 22 and 23, and P0001 from a trigger). Every other
 * error concerns the process, the database or the deployment, rejects no item and is retried.
 */
function isItemError(error: unknown): boolean {
  if (error instanceof IntakeMismatchError) return true;
  if (error instanceof ProtocolError || error instanceof ZodError) return true;
  return /^(22...|23...|P0001)$/.test(String((error as { code?: unknown }).code));
}

const YIELD_AFTER_MS = 1;

/**
 * Processes admissions: load → canonicalize → evaluate → hash → sign → append. It skips ids that are
 * unknown, not accepted or committed already, so the queue may deliver a message repeatedly.
 *
 * @param requests request ids from the queue: untrusted, for log lines only
 * @throws DeferredError when only some were committed; the cause when none was. Both may pass, and
 *   the requeue retries them.
 */
export async function processAdmissions(
  context: AdmitContext,
  ids: string[],
  requests: RequestIds = NO_REQUEST_IDS,
): Promise<void> {
  const metrics = context.metrics ?? NO_METRICS;
  const loadStart = performance.now();
  const pending = await loadPending(context.sql, ids);
  const loaded = performance.now();
  metrics.took('load', loaded - loadStart);
  const prepared: Prepared[] = [];
  const deferred: { id: string; cause: unknown }[] = [];
  let began = loaded;
  for (const intake of pending) {
    // Signing a long job must not block the event loop for a short one.
    if (performance.now() - began > YIELD_AFTER_MS) {
      await setImmediate();
      began = performance.now();
    }
    try {
      prepared.push(await prepare(context, intake));
    } catch (error) {
      if (isItemError(error)) await quarantine(context, intake, error, requests);
      // An unusable policy set defers only the admissions that are pinned to it.
      else deferred.push({ id: intake.proofId, cause: error });
    }
  }
  metrics.took('prepare', performance.now() - loaded);
  await appendOrIsolate(context, prepared, requests);
  if (deferred.length > 0) {
    const ids = deferred.map(({ id }) => id);
    throw new DeferredError(ids, deferred.at(-1)?.cause);
  }
}

/** Error isolation: a failed group is appended item by item, so one bad item rejects only itself. */
async function appendOrIsolate(
  context: AdmitContext,
  prepared: Prepared[],
  requests: RequestIds,
): Promise<void> {
  if (prepared.length === 0) return;
  try {
    logOutcomes(context.log, await append(context, prepared), requests);
  } catch (error) {
    if (!isItemError(error)) throw error;
    const [only, ...others] = prepared;
    if (only !== undefined && others.length === 0) {
      await quarantine(context, only.intake, error, requests);
      return;
    }
    context.log.warn(
      { err: error, items: prepared.length },
      'append of a group failed; its items are retried one by one',
    );
    for (const item of prepared) await appendOrIsolate(context, [item], requests);
  }
}

/** Rejects the item that caused the error: its caller gets an answer, and no worker retries it. */
async function quarantine(
  context: AdmitContext,
  intake: PendingIntake,
  error: unknown,
  requests: RequestIds,
): Promise<void> {
  const { proofId } = intake;
  const detail = error instanceof Error ? error.message : String(error);
  const share = await transaction(context.sql, async (tx) => {
    const claimed = (await claimPending(tx, [proofId])).get(proofId);
    if (claimed === undefined) return undefined;
    await refuse(tx, [{ proofId, code: 'processing_failed', detail }]);
    if (claimed !== null) await countOutcomes(tx, [{ share: claimed, outcome: 'refused' }]);
    return claimed;
  });
  if (share === undefined) return;
  context.metrics?.committed({ admitted: 0, denied: 0, refused: 1 });
  const batch = share === null ? {} : { batch_id: share.batchId };
  context.log.error(
    { err: error, ...idsOf(proofId, requests), ...batch },
    'admission quarantined: it is rejected and never signed',
  );
}
