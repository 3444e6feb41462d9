import type { Admission } from './options.js';

/** Admissions of calls that have not ended. `take` returns and removes an admission. */
export interface AdmissionStore {
  keep(call: string, admission: Admission): void | Promise<void>;
  take(call: string): Admission | undefined | Promise<Admission | undefined>;
}

const MAX_WAITING = 1_000;
/** Age limit of a kept admission: an old decision must not permit what the policy would deny now. */
const MAX_WAIT_MS = 15 * 60_000;

/** An `AdmissionStore` in memory. */
export function openRounds(maxWaitMs = MAX_WAIT_MS) {
  const waiting: { call: string; admission: Admission; until: number }[] = [];
  return {
    keep: (call: string, admission: Admission): void => {
      waiting.push({ call, admission, until: performance.now() + maxWaitMs });
      if (waiting.length > MAX_WAITING) waiting.shift();
    },
    take: (call: string): Admission | undefined => {
      const now = performance.now();
      const at = waiting.findIndex((one) => one.call === call && now < one.until);
      return at < 0 ? undefined : waiting.splice(at, 1)[0]?.admission;
    },
  };
}
