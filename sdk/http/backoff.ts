/**
 * Milliseconds before repetition `n` (from 1): doubled each time up to a cap, and drawn from the
 * upper half, so that clients that failed together do not come back together.
 *
 * @param random a number in [0, 1)
 */
export function backoffMs(
  n: number,
  { baseDelayMs, maxDelayMs }: { baseDelayMs: number; maxDelayMs: number },
  random: number,
): number {
  const whole = Math.min(maxDelayMs, baseDelayMs * 2 ** Math.min(n - 1, 30));
  return (whole * (1 + random)) / 2;
}
