/** Epoch milliseconds. Passed in, so that a test can stand at any moment. */
export interface Clock {
  now(): number;
}

export const systemClock: Clock = { now: () => Date.now() };
