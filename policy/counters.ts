import * as z from 'zod';
import { afterOf, appliedCounters, type Counters } from '#protocol/counters';
import { FACT_NAME_PATTERN } from '#protocol/schemas/facts';
import { ACTION_PATTERN } from '#protocol/schemas/primitives';
import type { PolicyInput } from '#protocol/policy-input';

const counterSchema = z.strictObject({
  /** Null: every action. */
  actions: z
    .array(z.string().regex(ACTION_PATTERN, 'expected an action'))
    .min(1, 'expected at least one action, or null for all')
    .refine(
      (all) => all.every((one, i) => i === 0 || all[i - 1]! < one),
      'expected actions in ascending order, each once',
    )
    .nullable(),
  /** The fact whose values are added; null: the actions are counted. */
  sum: z.string().regex(FACT_NAME_PATTERN, 'expected the name of a fact').nullable(),
  per: z.enum(['tenant', 'agent', 'run']),
  window: z.enum(['day', 'run']),
});

const NAME_FAULT = `expected a name that matches ${FACT_NAME_PATTERN.source}`;

export const countersSchema: z.ZodType<Counters> = z.record(
  z.string().regex(FACT_NAME_PATTERN),
  counterSchema,
  { error: ({ code }) => (code === 'invalid_key' ? NAME_FAULT : undefined) },
);

/** The problems of counters that only the declared facts show. */
export function counterFaults(
  counters: Counters,
  facts: ReadonlyMap<string, { type: string }>,
): string[] {
  return Object.entries(counters).flatMap(([name, { sum }]) => {
    const type = sum === null ? 'Long' : facts.get(sum)?.type;
    if (type === 'Long' || type === 'decimal') return [];
    return `${name} adds up ${sum}, which the schema must declare as a fact of type Long or decimal`;
  });
}

/** The text of a record type that declares the counters. */
export function budgetsRecord(counters: Counters): string {
  const attributes = Object.keys(counters).map(
    (name) => `"${name}"?: { before: Long, after: Long }`,
  );
  return `{ ${attributes.join(', ')} }`;
}

const REASON_PREFIX = 'budget.';

/**
 * The reasons to deny an action without an evaluation, sorted: counters that cannot count it or whose
 * value is unknown, and missing facts that they add up.
 */
export function unmetBudgets(counters: Counters, input: PolicyInput): string[] {
  const reasons = appliedCounters(counters, input).flatMap(([name, counter]) => {
    const { budgets, facts } = input;
    const known = Object.hasOwn(budgets, name) ? budgets[name] : undefined;
    if (known !== undefined && afterOf(counter, input, known.before) !== null) return [];
    const { sum } = counter;
    const isMissing = sum !== null && !Object.hasOwn(facts, sum);
    return [REASON_PREFIX + name, ...(isMissing ? [`fact.${sum}`] : [])];
  });
  return [...new Set(reasons)].sort();
}

/** A sentence about a reason of {@link unmetBudgets}; undefined for another reason. */
export function budgetSentence(reason: string): string | undefined {
  if (!reason.startsWith(REASON_PREFIX)) return undefined;
  return `The counter ${reason.slice(REASON_PREFIX.length)} cannot count this action: its amount, agent or run is missing, its amount is negative, or its value would be too large or is unknown.`;
}
