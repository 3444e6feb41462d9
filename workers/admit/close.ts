import { incompletenessOf } from '#policy/run';
import type { ClosedRun } from '#protocol/schemas/aep';
import type { PendingIntake } from '#sql/admissions/pending';
import { membersOf, placesOf, type RunPlace } from '#sql/admissions/runs';
import { statedRun } from '#sql/proofs/rebuild-aep';
import type { Db } from '#sql/db/transaction';
import type { Fault } from './rejections.js';

interface Closing {
  closedRun: ClosedRun | null;
  runFault: Fault | null;
}

/** For each close, the logged proofs of its run, and the reason if the close cannot end the run. */
export async function closedRunsOf(tx: Db, intakes: readonly PendingIntake[]): Promise<Closing[]> {
  const places = await placesOf(
    tx,
    intakes.map(({ proofId }) => proofId),
  );
  const closings: Closing[] = [];
  for (const { proofId, tenantNo } of intakes) {
    closings.push(await closingOf(tx, tenantNo, places.get(proofId)));
  }
  return closings;
}

async function closingOf(tx: Db, tenantNo: number, place: RunPlace | undefined): Promise<Closing> {
  const run = place === undefined ? [] : await membersOf(tx, tenantNo, place.runKey);
  // Closes are not members: once this close ends the run, the worker rejects every other close.
  const members = run.filter(({ closes }) => !closes);
  const detail = incompletenessOf(members)(place?.seq ?? 0);
  const logged = members.map((member) => ({ ...member, aepHash: member.aepHash ?? '' }));
  return {
    closedRun: statedRun(logged),
    runFault: detail === null ? null : { code: 'run_incomplete', detail },
  };
}
