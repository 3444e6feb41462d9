import { median, spread } from '../figures/median.js';
import { rowOf, type Row } from '../row.js';

/** What appending and looking up cost a registry of some size, in microseconds of CPU time. */
export interface GrowthPoint {
  proofs: number;
  /** Of each stretch of proofs, and of each round of lookups: all sizes had theirs in turn. */
  append: readonly number[];
  lookup: readonly number[];
}

/** How much dearer anything may get from the smallest registry to one of any size. */
const MOST = 1.25;

/**
 * A row for each figure at each size, held against the smallest turn by turn.
 *
 * @param points smallest first
 */
export function growthRows(points: readonly GrowthPoint[]): Row[] {
  const [first, ...others] = points;
  if (first === undefined) throw new Error('nothing was measured');
  return (['append', 'lookup'] as const).flatMap((figure) => [
    growthRow(figure, first, null),
    ...others.map((point) => growthRow(figure, point, first)),
  ]);
}

function growthRow(
  figure: 'append' | 'lookup',
  point: GrowthPoint,
  smallest: GrowthPoint | null,
): Row {
  const size = (proofs: number): string => proofs.toLocaleString('en-US');
  const costs = point[figure];
  const ratios = smallest && costs.map((cost, i) => cost / (smallest[figure][i] ?? NaN));
  return rowOf({
    row: `growth: ${figure} cost at ${size(point.proofs)}`,
    value: median(costs),
    unit: 'µs of CPU',
    ...(smallest !== null && {
      against: { what: `the same at ${size(smallest.proofs)}`, value: median(smallest[figure]) },
      ratio: median(ratios ?? []),
      reach: { ratio: { atMost: MOST } },
    }),
    note: `the middle of ${String(costs.length)} (${spread(costs)})${ratios === null ? '' : `, and of their ratios (${spread(ratios, 2)})`}`,
  });
}
