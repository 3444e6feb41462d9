import type { Befores } from '#policy/derive-aep';
import type { Effect } from '#protocol/status';
import {
  type AppliedCounter,
  counterId,
  type CounterRef,
  type CounterRow,
  readCounters,
} from '#sql/admissions/counters';
import type { Decision } from '#sql/proofs/rebuild-aep';
import type { Transaction } from '#sql/db/transaction';

/** Values of counters by id; 0 when absent. */
export type CounterValues = Map<string, number>;

/**
 * Predicted counter values: a group is signed before it has the append lock. A wrong value costs
 * another evaluation under the lock.
 */
export const expectedValues: CounterValues = new Map();
const EXPECTED_LIMIT = 10_000;

/** The change that an admitted proof makes to a counter. */
export interface CounterMove extends CounterRef {
  name: string;
  before: number;
  after: number;
}

/** Counter values before an admission; 0 without an agent or a run. */
export function beforesIn(values: CounterValues, applied: readonly AppliedCounter[]): Befores {
  return Object.fromEntries(
    applied.map(({ name, ref, window }) => {
      const before = (ref && values.get(counterId(ref))) ?? 0;
      return [name, { window, before }];
    }),
  );
}

/** The counters of a decision, except those without an agent or a run. */
export function movesOf({ budgets }: Decision, applied: readonly AppliedCounter[]): CounterMove[] {
  return applied.flatMap(({ name, ref }) => {
    const { after, before } = budgets[name]!;
    return ref === null ? [] : [{ ...ref, name, before, after }];
  });
}

/** A decision, and the counters that it changes if it admits. */
interface Decided {
  effect: Effect;
  moves: CounterMove[];
}

export function move(values: CounterValues, { effect, moves }: Decided): void {
  if (effect !== 'ADMIT') return;
  for (const one of moves) values.set(counterId(one), one.after);
}

/**
 * Under the append lock, compares the counter values that each proof was signed with, and evaluates
 * and signs again the proofs whose values differ. Replaces them in `admitted`; returns the rows to
 * write.
 *
 * @param size the index of the first proof
 */
export async function settleCounters<T extends Decided>(
  tx: Transaction,
  admitted: T[],
  size: number,
  prepareAgain: (item: T, values: CounterValues) => Promise<T>,
): Promise<CounterRow[]> {
  const refs = admitted.flatMap(({ moves }) => moves);
  if (refs.length === 0) return [];
  // Forgotten values are read again under the lock.
  if (expectedValues.size > EXPECTED_LIMIT) expectedValues.clear();
  const values = await readCounters(tx, refs);
  const rows = new Map<string, CounterRow>();
  let isExpected = true;
  for (const [at, item] of admitted.entries()) {
    const isCurrent = item.moves.every((one) => one.before === (values.get(counterId(one)) ?? 0));
    const settled = isCurrent ? item : await prepareAgain(item, values);
    admitted[at] = settled;
    isExpected &&= isCurrent;
    move(values, settled);
    if (settled.effect !== 'ADMIT') continue;
    for (const one of settled.moves) {
      const row = { ...one, value: one.after, leafIndex: size + at };
      rows.set(counterId(one), row);
    }
  }
  if (!isExpected) {
    for (const one of refs) expectedValues.set(counterId(one), values.get(counterId(one)) ?? 0);
  }
  return [...rows.values()];
}
