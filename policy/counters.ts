import * as z from 'zod';
import { FACT_NAME_PATTERN, NAME_FAULT } from '#protocol/schemas/facts';
import { ACTION_PATTERN, isAscending } from '#protocol/schemas/primitives';
import {
  type Budget,
  type PolicyInput,
  afterOf,
  appliedCounters,
  type Counters,
} from '#protocol/policy-input';
import type { Effect } from '#protocol/status';
import { type AppliedCounter, counterId, type CounterRef } from '#sql/admissions/counters';
import type { Decision } from '#sql/proofs/rebuild-aep';

const counterSchema = z.strictObject({
  /** The counted actions; null means all. */
  actions: z
    .array(z.string().regex(ACTION_PATTERN, 'expected an action'))
    .min(1, 'expected at least one action, or null for all')
    .refine(isAscending, 'expected distinct actions in ascending order')
    .nullable(),
  /** The fact that the counter sums; null for a counter of actions. */
  sum: z.string().regex(FACT_NAME_PATTERN, 'expected the name of a fact').nullable(),
  per: z.enum(['tenant', 'agent', 'run']),
  window: z.enum(['day', 'run']),
});

export const countersSchema: z.ZodType<Counters> = z.record(
  z.string().regex(FACT_NAME_PATTERN),
  counterSchema,
  { error: ({ code }) => (code === 'invalid_key' ? NAME_FAULT : undefined) },
);

/** Problems that depend on the declared facts: `sum` must name a Long or decimal fact. */
export function counterFaults(
  counters: Counters,
  facts: ReadonlyMap<string, { type: string }>,
): string[] {
  return Object.entries(counters).flatMap(([name, { sum }]) => {
    const type = sum === null ? 'Long' : facts.get(sum)?.type;
    if (type === 'Long' || type === 'decimal') return [];
    return `${name} sums ${sum}, which is not a declared fact of type Long or decimal`;
  });
}

/** The text of a record type that declares the counters. */
export function budgetsRecord(counters: Counters): string {
  const attributes = Object.keys(counters).map(
    (name) => `"${name}"?: { before: Long, after: Long }`,
  );
  return `{ ${attributes.join(', ')} }`;
}

/**
 * Reasons to deny before evaluation, sorted: counters that cannot count the action or whose value is
 * unknown, and missing facts that a counter sums.
 */
export function unmetBudgets(counters: Counters, input: PolicyInput): string[] {
  const reasons = appliedCounters(counters, input).flatMap(([name, counter]) => {
    const { budgets, facts } = input;
    const known = Object.hasOwn(budgets, name) ? budgets[name] : undefined;
    if (known !== undefined && afterOf(counter, input, known.before) !== null) return [];
    const { sum } = counter;
    const isMissing = sum !== null && !Object.hasOwn(facts, sum);
    return [`budget.${name}`, ...(isMissing ? [`fact.${sum}`] : [])];
  });
  return [...new Set(reasons)].sort();
}

/** Values of counters by id; 0 when absent. */
export type CounterValues = Map<string, number>;

export interface CounterMove extends CounterRef {
  name: string;
  before: number;
  after: number;
}

/** The window of each counter, and its value before an action; keyed by counter name. */
export type Befores = Record<string, Omit<Budget, 'after'>>;

/** Counter values before an admission; 0 for a counter per agent or run if the request has no agent or run. */
export function beforesIn(values: CounterValues, applied: readonly AppliedCounter[]): Befores {
  return Object.fromEntries(
    applied.map(({ name, ref, window }) => {
      const before = (ref && values.get(counterId(ref))) ?? 0;
      return [name, { window, before }];
    }),
  );
}

/** The counter changes of a decision; none for a counter per agent or run if the request has no agent or run. */
export function movesOf(
  { budgets }: Pick<Decision, 'budgets'>,
  applied: readonly AppliedCounter[],
): CounterMove[] {
  return applied.flatMap(({ name, ref }) => {
    const { after, before } = budgets[name]!;
    return ref === null ? [] : [{ ...ref, name, before, after }];
  });
}

/** Applies the changes of a decision, if it admits. */
export function applyMoves(
  values: CounterValues,
  { effect, moves }: { effect: Effect; moves: CounterMove[] },
): void {
  if (effect !== 'ADMIT') return;
  for (const one of moves) values.set(counterId(one), one.after);
}
