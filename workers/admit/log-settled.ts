import type { RequestIds } from '#runtime/http/request-ids';
import type { BatchRef } from '#sql/admissions/append';
import type { Appended } from './append.js';
import type { AdmitContext } from './context.js';

/** A single admission older than this was requeued. */
const LATE_MS = 2_000;

/** Ids in one log line; the debug line has all of them. */
const MAX_LOGGED_IDS = 20;

type Log = Pick<AdmitContext, 'log'>;

/**
 * Logs the outcome of a group in one line. Success is logged at debug, because the engine logs the
 * request already; rejected and late admissions are logged with their ids.
 */
export function logSettled({ log }: Log, appended: Appended, requests: RequestIds): void {
  const { admitted, refusals, shares } = appended;
  if (refusals.length > 0) {
    log.info(
      { ...logFields(refusals, shares, requests), admissions: refusals.length },
      'admissions rejected before signing',
    );
  }
  if (admitted.length === 0) return;
  const lateBefore = Date.now() - LATE_MS;
  const late = admitted.filter(
    ({ intake }) => intake.acceptedAt < lateBefore && shares.get(intake.proofId) === null,
  );
  if (late.length > 0) {
    log.info(
      { ...logFields(late.map(outcome), shares, requests), admissions: late.length },
      'admissions committed late',
    );
  }
  if (log.isLevelEnabled('debug')) {
    log.debug(
      { ...logFields(admitted.map(outcome), shares, requests), admissions: admitted.length },
      'admissions committed',
    );
  }
}

const outcome = ({ intake, effect }: Appended['admitted'][number]) => ({
  proofId: intake.proofId,
  effect,
});

interface LoggedOutcome {
  proofId: string;
  code?: string;
  effect?: string;
}

/** Lists single admissions by id and batch items by batch: the batch leads to their ids. */
function logFields(
  outcomes: readonly LoggedOutcome[],
  shares: ReadonlyMap<string, BatchRef | null>,
  requests: RequestIds,
): { alone?: object[]; batches?: object[] } {
  const alone: object[] = [];
  const batches = new Map<string, number>();
  for (const { proofId, ...rest } of outcomes) {
    const share = shares.get(proofId) ?? null;
    if (share !== null) batches.set(share.batchId, (batches.get(share.batchId) ?? 0) + 1);
    else alone.push({ ...idsOf(proofId, requests), ...rest });
  }
  return {
    ...(alone.length > 0 && { alone }),
    ...(batches.size > 0 && {
      batches: [...batches].map(([batch_id, admissions]) => ({ batch_id, admissions })),
    }),
  };
}

/** Ids of an admission, as log fields. */
export function idsOf(
  proofId: string,
  requests: RequestIds,
): { proof_id: string; request_id?: string } {
  const requestId = requests.of(proofId);
  return { proof_id: proofId, ...(requestId !== undefined && { request_id: requestId }) };
}

/** Ids of the first few admissions, as log fields. */
export function firstOf(proofIds: readonly string[], requests: RequestIds): object[] {
  return proofIds.slice(0, MAX_LOGGED_IDS).map((proofId) => idsOf(proofId, requests));
}
