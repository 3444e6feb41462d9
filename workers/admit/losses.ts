import type { CounterMove } from '#policy/counters';
import { MAX_AHEAD_MS } from '#policy/run';
import { uuidTime } from '#protocol/ids';
import type { AepSubject } from '#protocol/schemas/aep';
import { type PinnedIntake, readStoredApproval } from '#sql/proofs/rebuild-aep';

/**
 * The rejection of an item that depends on data that the service lost with adopted leaves, or null. Such
 * data are members of a run, second decisions, and counter values up to the day of the adoption.
 *
 * @param adopted the time of the last adoption, in epoch milliseconds, or null
 */
export function lossFault(
  { intake, moves, subject }: { intake: PinnedIntake; moves: CounterMove[]; subject: AepSubject },
  adopted: number | null,
): { code: 'run_closed' | 'processing_failed'; detail: string } | null {
  if (adopted === null) return null;
  const end = adopted + MAX_AHEAD_MS;
  const run = 'run' in subject ? subject.run : undefined;
  const pending = readStoredApproval(intake.approval)?.envelope.statement.proof_id;
  if ((run && uuidTime(run.id) < end) || (pending !== undefined && uuidTime(pending) < end)) {
    const detail =
      'the service has lost proofs from the time of this run or pending proof: start a new run, or request a new approval';
    return { code: 'run_closed', detail };
  }
  const day = new Date(adopted).toISOString().slice(0, 10);
  const counter = moves.find(({ period }) => period !== 'run' && period <= day);
  if (counter === undefined) return null;
  const detail = `the service lost the value of the counter ${counter.name} for ${counter.period}: send the request again on the next day (UTC)`;
  return { code: 'processing_failed', detail };
}
