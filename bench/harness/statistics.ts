/**
 * The nearest-rank percentile: the smallest value that `percent` % of the values do not exceed.
 *
 * @throws RangeError without values, or when `percent` is not above 0 and at most 100
 */
export function percentile(values: readonly number[], percent: number): number {
  if (!(percent > 0 && percent <= 100)) throw new RangeError(`invalid percent: ${String(percent)}`);
  const found = [...values].sort((a, b) => a - b)[Math.ceil((values.length * percent) / 100) - 1];
  if (found === undefined) throw new RangeError('percentile of an empty set');
  return found;
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

export function spread(values: readonly number[], digits = 0): string {
  return `${Math.min(...values).toFixed(digits)}–${Math.max(...values).toFixed(digits)}`;
}

export function sumOf<T>(values: readonly T[], of: (value: T) => number): number {
  return values.reduce((sum, value) => sum + of(value), 0);
}

export const whole = (value: number): string =>
  value.toLocaleString('en-US', { maximumFractionDigits: 0 });
