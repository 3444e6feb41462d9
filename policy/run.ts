import { uuidTime } from '#protocol/ids';
import type { Run } from '#protocol/schemas/primitives';
import type { RunMember } from '#sql/admissions/runs';

/** How far the time in a run's id may be ahead of the service's clock, in milliseconds. */
export const MAX_AHEAD_MS = 60_000;

/** Whether a run's id, a UUIDv7, has an acceptable time at `now`, in epoch milliseconds. */
export function isRunTimely({ id }: Run, now: number): boolean {
  return uuidTime(id) <= now + MAX_AHEAD_MS;
}

/** Why a close with `seq` cannot end a run; null if exactly the requests 0 to `seq` − 1 exist and are decided. */
export function incompletenessOf(members: readonly RunMember[]): (seq: number) => string | null {
  const others = members.filter(({ closes }) => !closes);
  const numbers = new Set(others.map(({ seq }) => seq));
  const last = others.reduce((most, { seq }) => Math.max(most, seq), -1);
  const pending = others.filter(({ leafIndex }) => leafIndex === null);
  let missing = 0;
  while (numbers.has(missing)) missing += 1;
  return (seq) => {
    if (last >= seq) return `the run has a request with seq ${last}`;
    if (pending[0] !== undefined) return `${andMore(pending[0].seq, pending.length)} pending`;
    return numbers.size === seq ? null : `${andMore(missing, seq - numbers.size)} missing`;
  };
}

const andMore = (seq: number, count: number): string =>
  count === 1 ? `seq ${seq} is` : `seq ${seq} and ${count - 1} more are`;
