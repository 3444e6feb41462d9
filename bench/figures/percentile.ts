/** A value, and how often it was seen. */
export type Weighted = readonly [value: number, count: number];

/** A share within so little of a whole rank is that rank, whatever floating point made of it. */
const TOLERANCE = 1e-9;

/**
 * The nearest-rank percentile: the least of the values seen that at least `percent` of all are not
 * above.
 *
 * @throws RangeError when nothing was seen, or `percent` is not above 0 and at most 100
 */
export function percentile(seen: Iterable<Weighted>, percent: number): number {
  if (!(percent > 0 && percent <= 100)) throw new RangeError(`no percentile: ${String(percent)}`);
  const sorted = [...seen].filter(([, count]) => count > 0).sort(([a], [b]) => a - b);
  const all = sorted.reduce((sum, [, count]) => sum + count, 0);
  const wanted = (all * percent) / 100;
  let notAbove = 0;
  for (const [value, count] of sorted) {
    notAbove += count;
    if (notAbove >= wanted - TOLERANCE * all) return value;
  }
  throw new RangeError('there is no percentile of nothing');
}

/** The same of values that were seen once each. */
export function percentileOf(values: readonly number[], percent: number): number {
  return percentile(
    values.map((value) => [value, 1] as const),
    percent,
  );
}
