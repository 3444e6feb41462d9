import type { RequestIds } from '#runtime/http/request-ids';
import type { BatchRef } from '#sql/admissions/append';
import type { Appended } from './append.js';
import type { AdmitContext } from './context.js';

/** What came alone and took longer than this has missed its turn: the sweeper has asked again. */
const LATE_MS = 2_000;

/** Enough to begin with; debug says all of them. */
const NAMED_MOST = 20;

type Log = Pick<AdmitContext, 'log'>;

/**
 * Says what became of a group, a line for all of it. What went as it should is for debug, for the
 * engine's line of the request says it already; what did not is told with the ids that lead there.
 */
export function logSettled({ log }: Log, appended: Appended, requests: RequestIds): void {
  const { admitted, refusals, shares } = appended;
  if (refusals.length > 0) {
    log.info(
      { ...logFields(refusals, shares, requests), admissions: refusals.length },
      'refused before signing',
    );
  }
  if (admitted.length === 0) return;
  const began = Date.now() - LATE_MS;
  const late = admitted.filter(
    ({ intake }) => intake.acceptedAt < began && shares.get(intake.proofId) === null,
  );
  if (late.length > 0) {
    log.info(
      { ...logFields(late.map(outcome), shares, requests), admissions: late.length },
      'settled late',
    );
  }
  if (log.isLevelEnabled('debug')) {
    log.debug(
      { ...logFields(admitted.map(outcome), shares, requests), admissions: admitted.length },
      'settled',
    );
  }
}

const outcome = ({ intake, effect }: Appended['admitted'][number]) => ({
  proofId: intake.proofId,
  effect,
});

interface Told {
  proofId: string;
  code?: string;
  effect?: string;
}

/** Those that came alone each by its own ids, those of a batch by the batch: it has the others. */
function logFields(
  told: readonly Told[],
  shares: ReadonlyMap<string, BatchRef | null>,
  requests: RequestIds,
): { alone?: object[]; batches?: object[] } {
  const alone: object[] = [];
  const batches = new Map<string, number>();
  for (const { proofId, ...became } of told) {
    const share = shares.get(proofId) ?? null;
    if (share !== null) batches.set(share.batchId, (batches.get(share.batchId) ?? 0) + 1);
    else alone.push({ ...idsOf(proofId, requests), ...became });
  }
  return {
    ...(alone.length > 0 && { alone }),
    ...(batches.size > 0 && {
      batches: [...batches].map(([batch_id, admissions]) => ({ batch_id, admissions })),
    }),
  };
}

/** An admission as a log line names it. */
export function idsOf(
  proofId: string,
  requests: RequestIds,
): { proof_id: string; request_id?: string } {
  const requestId = requests.of(proofId);
  return { proof_id: proofId, ...(requestId !== undefined && { request_id: requestId }) };
}

/** The first of many. */
export function firstOf(proofIds: readonly string[], requests: RequestIds): object[] {
  return proofIds.slice(0, NAMED_MOST).map((proofId) => idsOf(proofId, requests));
}
