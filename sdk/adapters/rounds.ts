import type { Admission } from './options.js';

/** Admissions of calls that returned without a result, and whose next round is to come. */
export interface Rounds {
  /** @param call equal for rounds of equal calls only */
  keep(call: string, admission: Admission): void;
  /** Each admission is taken once. Undefined without one: the round then needs its own. */
  take(call: string): Admission | undefined;
}

const MAX_WAITING = 1_000;
/** An old decision must not permit what the policy would deny now. */
const MAX_WAIT_MS = 15 * 60_000;

export function openRounds(): Rounds {
  const waiting: { call: string; admission: Admission; until: number }[] = [];
  return {
    keep: (call, admission) => {
      waiting.push({ call, admission, until: performance.now() + MAX_WAIT_MS });
      if (waiting.length > MAX_WAITING) waiting.shift();
    },
    take: (call) => {
      const now = performance.now();
      const at = waiting.findIndex((one) => one.call === call && now < one.until);
      return at < 0 ? undefined : waiting.splice(at, 1)[0]?.admission;
    },
  };
}
