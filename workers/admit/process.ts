import { setImmediate } from 'node:timers/promises';
import { ZodError } from 'zod';
import { IntakeMismatchError } from '#policy/errors';
import { ProtocolError } from '#protocol/errors';
import { claimPending, loadPending, refuse, type PendingIntake } from '#sql/admissions/append';
import { countSettled } from '#sql/batches/chunks';
import { transaction } from '#sql/db/transaction';
import { NO_REQUEST_IDS, type RequestIds } from '#runtime/http/request-ids';
import { append, type Appended } from './append.js';
import { type AdmitContext, DeferredError, UNCOUNTED } from './context.js';
import { prepare, type Prepared } from './prepare.js';
import { idsOf, logSettled } from './log-settled.js';

/**
 * Whether an error is the item's own: what was stored is not what was accepted, or the database
 * refuses its data (SQLSTATE classes 22 and 23, and P0001 from a rule of the registry). Everything
 * else is about this process, the database or the deployment; it refuses nobody and is tried again.
 */
function isTheItems(error: unknown): boolean {
  if (error instanceof IntakeMismatchError) return true;
  if (error instanceof ProtocolError || error instanceof ZodError) return true;
  return /^(22...|23...|P0001)$/.test(String((error as { code?: unknown }).code));
}

const AT_A_STRETCH_MS = 1;

/**
 * Settles admissions: load → canonicalize → evaluate → hash → sign → append. Ids that are unknown,
 * not accepted or settled already are passed over, so any message may come any number of times.
 *
 * @param requests who brought which, for log lines alone: it came out of the queue
 * @throws DeferredError when all but some were settled, and what went wrong when none could be; both
 *   for reasons that may pass, and the sweeper comes back
 */
export async function processAdmissions(
  context: AdmitContext,
  ids: string[],
  requests: RequestIds = NO_REQUEST_IDS,
): Promise<void> {
  const metrics = context.metrics ?? UNCOUNTED;
  const asked = performance.now();
  const pending = await loadPending(context.sql, ids);
  const loaded = performance.now();
  metrics.took('load', loaded - asked);
  const prepared: Prepared[] = [];
  const heldBack: { ids: string[]; by: unknown } = { ids: [], by: undefined };
  let began = loaded;
  for (const intake of pending) {
    // A long job is no reason for a short one to wait until all of it is signed.
    if (performance.now() - began > AT_A_STRETCH_MS) {
      await setImmediate();
      began = performance.now();
    }
    try {
      prepared.push(await prepare(context, intake));
    } catch (error) {
      if (isTheItems(error)) await quarantine(context, intake, error, requests);
      // A policy set that this process cannot run holds back what is pinned to it, and no more.
      else {
        heldBack.ids.push(intake.proofId);
        heldBack.by = error;
      }
    }
  }
  metrics.took('prepare', performance.now() - loaded);
  await appendOrIsolate(context, prepared, requests);
  if (heldBack.ids.length > 0) throw new DeferredError(heldBack.ids, heldBack.by);
}

/** One bad item never fails its neighbours: a group that fails is appended item by item. */
async function appendOrIsolate(
  context: AdmitContext,
  prepared: Prepared[],
  requests: RequestIds,
): Promise<void> {
  if (prepared.length === 0) return;
  let appended: Appended;
  try {
    appended = await append(context, prepared);
  } catch (error) {
    if (!isTheItems(error)) throw error;
    const [only, ...others] = prepared;
    if (only !== undefined && others.length === 0) {
      await quarantine(context, only.intake, error, requests);
      return;
    }
    context.log.warn({ err: error, items: prepared.length }, 'a group failed; going item by item');
    for (const item of prepared) await appendOrIsolate(context, [item], requests);
    return;
  }
  logSettled(context, appended, requests);
}

/** Closes the culprit with its error, so that its caller is answered and nobody retries for ever. */
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
    if (claimed !== null) await countSettled(tx, [{ share: claimed, became: 'refused' }]);
    return claimed;
  });
  if (share === undefined) return;
  context.metrics?.committed({ admitted: 0, denied: 0, refused: 1 });
  const batch = share === null ? {} : { batch_id: share.batchId };
  context.log.error({ err: error, ...idsOf(proofId, requests), ...batch }, 'admission set aside');
}
