/** The time in epoch milliseconds. Callers pass a clock, so that tests can set the time. */
export interface Clock {
  now(): number;
}

export const systemClock: Clock = { now: () => Date.now() };

/** Measures durations: a correction of the system's clock does not change this clock. */
export const monotonicClock: Clock = { now: () => performance.now() };
