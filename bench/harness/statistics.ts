/** A value and how often it was observed. Counts may be fractions. */
export type Weighted = readonly [value: number, count: number];

/** Rounding error of summed counts that still counts as reaching a rank. */
const TOLERANCE = 1e-9;

/**
 * The nearest-rank percentile: the smallest observed value that at least `percent` of all do not
 * exceed.
 *
 * @throws RangeError when nothing was observed, or `percent` is not above 0 and at most 100
 */
export function percentile(observed: Iterable<Weighted>, percent: number): number {
  if (!(percent > 0 && percent <= 100)) throw new RangeError(`invalid percent: ${String(percent)}`);
  const sorted = [...observed].filter(([, count]) => count > 0).sort(([a], [b]) => a - b);
  const all = sorted.reduce((sum, [, count]) => sum + count, 0);
  const rank = (all * percent) / 100;
  let seen = 0;
  for (const [value, count] of sorted) {
    seen += count;
    if (seen >= rank - TOLERANCE * all) return value;
  }
  throw new RangeError('percentile of an empty set');
}

/** {@link percentile} of values that were observed once each. */
export function percentileOf(values: readonly number[], percent: number): number {
  return percentile(
    values.map((value) => [value, 1] as const),
    percent,
  );
}

/** The median; NaN when any value is NaN, so that a failed measurement never disappears. */
export function median(values: readonly number[]): number {
  if (values.some(Number.isNaN)) return NaN;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  const upper = sorted[Math.floor(middle)];
  const lower = sorted[Math.ceil(middle) - 1];
  if (upper === undefined || lower === undefined) throw new RangeError('median of an empty set');
  return (lower + upper) / 2;
}

/** The median of round-by-round ratios; NaN when a round has no counterpart. */
export function pairedRatio(values: readonly number[], others: readonly number[]): number {
  return median(values.map((value, i) => value / (others[i] ?? NaN)));
}

/** Minimum and maximum, for a note. */
export function spread(values: readonly number[], digits = 0): string {
  return `${Math.min(...values).toFixed(digits)}–${Math.max(...values).toFixed(digits)}`;
}

export function sumOf<T>(values: readonly T[], of: (value: T) => number): number {
  return values.reduce((sum, value) => sum + of(value), 0);
}

/** A whole number with thousands separators. */
export const whole = (value: number): string =>
  value.toLocaleString('en-US', { maximumFractionDigits: 0 });
