import { setImmediate } from 'node:timers/promises';
import { ZodError } from 'zod';
import { IntakeMismatchError } from '#policy/errors';
import { ProtocolError } from '#protocol/errors';
import { claimPending, loadPending, refuse, type PendingIntake } from '#sql/append';
import { countSettled } from '#sql/batch-work';
import { transaction } from '#sql/transaction';
import { append } from './append.js';
import type { AdmitContext } from './context.js';
import { prepare, type Prepared } from './prepare.js';

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

const AT_A_STRETCH_MS = 5;

/**
 * Settles admissions: load → canonicalize → evaluate → hash → sign → append. Ids that are unknown,
 * not accepted or settled already are passed over, so any message may come any number of times.
 *
 * @throws when something could not be settled for a reason that may pass; the sweeper comes back
 */
export async function processAdmissions(context: AdmitContext, ids: string[]): Promise<void> {
  const pending = await loadPending(context.sql, ids);
  const prepared: Prepared[] = [];
  let heldBack: unknown;
  let began = performance.now();
  for (const intake of pending) {
    // A long job is no reason for a short one to wait until all of it is signed.
    if (performance.now() - began > AT_A_STRETCH_MS) {
      await setImmediate();
      began = performance.now();
    }
    try {
      prepared.push(await prepare(context, intake));
    } catch (error) {
      if (isTheItems(error)) await setAside(context, intake, error);
      // A policy set that this process cannot run holds back what is pinned to it, and no more.
      else heldBack = error;
    }
  }
  await appendOrIsolate(context, prepared);
  if (heldBack !== undefined) throw heldBack as Error;
}

/** One bad item never fails its neighbours: a group that fails is appended item by item. */
async function appendOrIsolate(context: AdmitContext, prepared: Prepared[]): Promise<void> {
  if (prepared.length === 0) return;
  try {
    await append(context, prepared);
  } catch (error) {
    if (!isTheItems(error)) throw error;
    const [only, ...others] = prepared;
    if (only !== undefined && others.length === 0) {
      await setAside(context, only.intake, error);
      return;
    }
    context.log.warn({ err: error, items: prepared.length }, 'a group failed; going item by item');
    for (const item of prepared) await appendOrIsolate(context, [item]);
  }
}

/** Closes the culprit with its error, so that its caller is answered and nobody retries for ever. */
async function setAside(
  context: AdmitContext,
  intake: PendingIntake,
  error: unknown,
): Promise<void> {
  context.log.error({ err: error, proof_id: intake.proofId }, 'admission set aside');
  const detail = error instanceof Error ? error.message : String(error);
  await transaction(context.sql, async (tx) => {
    const share = (await claimPending(tx, [intake.proofId])).get(intake.proofId);
    if (share === undefined) return;
    await refuse(tx, [{ proofId: intake.proofId, code: 'processing_failed', detail }]);
    if (share !== null) await countSettled(tx, [{ share, became: 'refused' }]);
  });
}
