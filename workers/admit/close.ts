import { incompletenessOf, isRunTimely } from '#policy/run';
import type { AepSubject, ClosedRun } from '#protocol/schemas/aep';
import type { PendingIntake } from '#sql/admissions/append';
import { isPlaceOf, membersOf, placesOf, type RunPlace } from '#sql/admissions/runs';
import { statedRun } from '#sql/proofs/rebuild-aep';
import type { Db } from '#sql/db/transaction';

/** Why an item must not be appended. */
export interface RunFault {
  code: 'processing_failed' | 'invalid_run' | 'run_closed' | 'run_incomplete';
  detail: string;
}

const CLOSED: RunFault = { code: 'run_closed', detail: 'the run was closed before' };

interface Item {
  intake: PendingIntake;
  subject: AepSubject;
}

/**
 * The items that their runs exclude, by proof id. Under the append lock, because a close may have been
 * appended since the engine's check.
 */
export async function faultsOfRuns(tx: Db, items: readonly Item[]): Promise<Map<string, RunFault>> {
  const inRuns = items.filter(
    ({ intake, subject }) => intake.runCloses !== null || runOf(subject) !== undefined,
  );
  if (inRuns.length === 0) return new Map();
  const places = await placesOf(
    tx,
    inRuns.map(({ intake }) => intake.proofId),
  );
  return new Map(
    inRuns.flatMap(({ intake, subject }) => {
      const fault = faultOf(intake, subject, places.get(intake.proofId));
      return fault === null ? [] : [[intake.proofId, fault]];
    }),
  );
}

const runOf = (subject: AepSubject) => ('run' in subject ? subject.run : undefined);

function faultOf(
  { acceptedAt }: PendingIntake,
  subject: AepSubject,
  place: (RunPlace & { isClosed: boolean }) | undefined,
): RunFault | null {
  const run = runOf(subject);
  if (run === undefined || place === undefined || !isPlaceOf(subject, place)) {
    return {
      code: 'processing_failed',
      detail: 'the stored run or number differs from the request',
    };
  }
  if (!isRunTimely(run, acceptedAt)) {
    return {
      code: 'invalid_run',
      detail: 'the time in the id of the run is more than 60 s after acceptance',
    };
  }
  return place.isClosed ? CLOSED : null;
}

interface Closing {
  closedRun: ClosedRun | null;
  runFault: RunFault | null;
}

/** For each close, the logged proofs of its run, and the reason if it cannot end the run. */
export async function closedRunsOf(tx: Db, intakes: readonly PendingIntake[]): Promise<Closing[]> {
  const places = await placesOf(
    tx,
    intakes.map(({ proofId }) => proofId),
  );
  const ended = new Set<string>();
  const closings: Closing[] = [];
  for (const { proofId, tenantNo } of intakes) {
    const place = places.get(proofId);
    const closing = await closingOf(tx, tenantNo, place);
    const run = `${tenantNo} ${place?.runKey ?? ''}`;
    closings.push(ended.has(run) ? { ...closing, runFault: CLOSED } : closing);
    ended.add(run);
  }
  return closings;
}

async function closingOf(tx: Db, tenantNo: number, place: RunPlace | undefined): Promise<Closing> {
  const run = place === undefined ? [] : await membersOf(tx, tenantNo, place.runKey);
  // Excludes another pending close, which will be rejected because this close ends the run.
  const members = run.filter(({ closes }) => !closes);
  const detail = incompletenessOf(members)(place?.seq ?? 0);
  const logged = members.map((member) => ({ ...member, aepHash: member.aepHash ?? '' }));
  return {
    closedRun: statedRun(logged),
    runFault: detail === null ? null : { code: 'run_incomplete', detail },
  };
}
