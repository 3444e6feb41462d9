import { claimPending, loadPending, refuse, type PendingIntake } from '#sql/append';
import { isUnavailable } from '#sql/errors';
import { transaction } from '#sql/transaction';
import { append } from './append.js';
import { PolicySetError } from '../policy/policy-set.js';
import type { AdmitContext } from './context.js';
import { SigningKeyInactiveError } from './errors.js';
import { prepare, type Prepared } from './prepare.js';

// Deadlock and serialization failures say nothing about the item: the same work may pass next time.
const TRY_AGAIN = new Set(['40001', '40P01', '55P03']);

/** Errors that are about this process or the database, never about one item. */
function isEverybodys(error: unknown): boolean {
  if (isUnavailable(error)) return true;
  if (error instanceof SigningKeyInactiveError || error instanceof PolicySetError) return true;
  return TRY_AGAIN.has(String((error as { code?: unknown }).code));
}

/**
 * Settles admissions: load → canonicalize → evaluate → hash → sign → append. Ids that are unknown,
 * not accepted or settled already are passed over, so any message may come any number of times.
 *
 * @throws when nothing could be settled for a reason that may pass; the sweeper comes back
 */
export async function processAdmissions(context: AdmitContext, ids: string[]): Promise<void> {
  const pending = await loadPending(context.sql, ids);
  const prepared: Prepared[] = [];
  for (const intake of pending) {
    try {
      prepared.push(await prepare(context, intake));
    } catch (error) {
      if (isEverybodys(error)) throw error;
      await setAside(context, intake, error);
    }
  }
  await appendOrIsolate(context, prepared);
}

/** One bad item never fails its neighbours: a group that fails is appended item by item. */
async function appendOrIsolate(context: AdmitContext, prepared: Prepared[]): Promise<void> {
  if (prepared.length === 0) return;
  try {
    await append(context, prepared);
  } catch (error) {
    if (isEverybodys(error)) throw error;
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
    const claimed = await claimPending(tx, [intake.proofId]);
    if (!claimed.has(intake.proofId)) return;
    await refuse(tx, [{ proofId: intake.proofId, code: 'processing_failed', detail }]);
  });
}
