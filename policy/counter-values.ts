import { type AppliedCounter, counterId, type CounterRef } from '#sql/admissions/counters';
import type { Effect } from '#protocol/status';
import type { Decision } from '#sql/proofs/rebuild-aep';
import type { Befores } from './derive-aep.js';

/** Values of counters by id; 0 when absent. */
export type CounterValues = Map<string, number>;

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
export function movesOf(
  { budgets }: Pick<Decision, 'budgets'>,
  applied: readonly AppliedCounter[],
): CounterMove[] {
  return applied.flatMap(({ name, ref }) => {
    const { after, before } = budgets[name]!;
    return ref === null ? [] : [{ ...ref, name, before, after }];
  });
}

/** A decision, and the counters that it changes if it admits. */
export interface Counting {
  effect: Effect;
  moves: CounterMove[];
}

export function move(values: CounterValues, { effect, moves }: Counting): void {
  if (effect !== 'ADMIT') return;
  for (const one of moves) values.set(counterId(one), one.after);
}
