/** The time in epoch milliseconds. Injected, so that tests can set it. */
export interface Clock {
  now(): number;
}

export const systemClock: Clock = { now: () => Date.now() };

/** Measures durations: a correction of the system's clock does not change this clock. */
export const monotonicClock: Clock = { now: () => performance.now() };
