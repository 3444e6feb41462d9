import { appliedCounters, counterKey, type Counters } from '#protocol/counters';
import type { Befores } from '#policy/derive-aep';
import type { PolicyInput } from '#protocol/policy-input';
import type { Effect } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import {
  counterId,
  type CounterRef,
  type CounterRow,
  readCounters,
} from '#sql/admissions/counters';
import type { Decision, PinnedIntake } from '#sql/proofs/rebuild-aep';
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

/** Counter values before an admission; 0 without an agent. */
export function beforesIn(
  values: CounterValues,
  intake: PinnedIntake,
  input: PolicyInput,
  counters: Counters,
): Befores {
  const day = dayOf(intake);
  return Object.fromEntries(
    appliedCounters(counters, input).map(([name, counter]) => {
      const key = counterKey(nativeSha256, name, counter, input);
      const id = key === null ? '' : counterId({ tenantNo: intake.tenantNo, key, day });
      return [name, { window: { day }, before: values.get(id) ?? 0 }];
    }),
  );
}

const dayOf = ({ acceptedAt }: PinnedIntake): string => formatTime(acceptedAt).slice(0, 10);

/** The counters of a decision, except those without an agent. */
export function movesOf(
  intake: PinnedIntake,
  input: PolicyInput,
  { budgets }: Decision,
  counters: Counters,
): CounterMove[] {
  return Object.entries(budgets).flatMap(([name, { before, after }]) => {
    const key = counterKey(nativeSha256, name, counters[name]!, input);
    if (key === null) return [];
    return [{ tenantNo: intake.tenantNo, key, day: dayOf(intake), name, before, after }];
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
