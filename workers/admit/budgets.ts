import { type Counting, type CounterValues, move } from '#policy/counters';
import { counterId, type CounterRow, readCounters } from '#sql/admissions/counters';
import type { Transaction } from '#sql/db/transaction';

/**
 * Predicted counter values: a group is signed before it has the append lock. A wrong value costs
 * another evaluation under the lock.
 */
export const expectedValues: CounterValues = new Map();
const EXPECTED_LIMIT = 10_000;

/**
 * Under the append lock, compares the counter values that each proof was signed with, and evaluates
 * and signs again the proofs whose values differ. Replaces them in `admitted`; returns the rows to
 * write.
 *
 * @param size the index of the first proof
 */
export async function settleCounters<T extends Counting>(
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
