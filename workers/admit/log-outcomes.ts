import type { RequestIds } from '#runtime/http/request-ids';
import type { Logger } from '#runtime/process/log';
import type { BatchRef } from '#sql/admissions/append';
import type { Appended } from './append.js';

/** A single admission older than this was requeued. */
const LATE_MS = 2_000;

/** Ids in one log line; the debug line has all of them. */
const MAX_LOGGED_IDS = 20;

interface LoggedOutcome {
  proofId: string;
  code?: string;
  effect?: string;
}

/**
 * Logs the outcome of a group in one line. Success is logged at debug, because the engine logs the
 * request already; rejected and late admissions are logged with their ids.
 */
export function logOutcomes(log: Logger, appended: Appended, requests: RequestIds): void {
  const { admitted, rejected, batches } = appended;
  const fields = (outcomes: readonly LoggedOutcome[]) => ({
    ...logFields(outcomes, batches, requests),
    admissions: outcomes.length,
  });
  if (rejected.length > 0) log.info(fields(rejected), 'admissions rejected before signing');
  const outcomeOf = ({ intake, effect }: Appended['admitted'][number]): LoggedOutcome => ({
    proofId: intake.proofId,
    effect,
  });
  const lateBefore = Date.now() - LATE_MS;
  const late = admitted.filter(
    ({ intake }) => intake.acceptedAt < lateBefore && batches.get(intake.proofId) === null,
  );
  if (late.length > 0) log.info(fields(late.map(outcomeOf)), 'admissions committed late');
  if (admitted.length > 0 && log.isLevelEnabled('debug')) {
    log.debug(fields(admitted.map(outcomeOf)), 'admissions committed');
  }
}

/** Lists single admissions by id and batch items by batch: the batch leads to their ids. */
function logFields(
  outcomes: readonly LoggedOutcome[],
  batches: ReadonlyMap<string, BatchRef | null>,
  requests: RequestIds,
): { single?: object[]; batches?: object[] } {
  const single: object[] = [];
  const counts = new Map<string, number>();
  for (const { proofId, ...rest } of outcomes) {
    const batchId = batches.get(proofId)?.batchId;
    if (batchId !== undefined) counts.set(batchId, (counts.get(batchId) ?? 0) + 1);
    else single.push({ ...idsOf(proofId, requests), ...rest });
  }
  return {
    ...(single.length > 0 && { single }),
    ...(counts.size > 0 && {
      batches: [...counts].map(([batch_id, admissions]) => ({ batch_id, admissions })),
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
