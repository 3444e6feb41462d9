import * as z from 'zod';
import { documentHash } from '#protocol/hash';
import { FACT_NAME_PATTERN, type Facts } from '#protocol/schemas/facts';
import { ACTION_PATTERN } from '#protocol/schemas/primitives';
import type { PolicyInput } from '#protocol/policy-input';
import { nativeSha256 } from '#runtime/crypto/node';
import type { PolicyCounter } from '#sql/admissions/policies';
import type { DeclaredFacts } from './facts.js';

const RUNS = 'counters per run are not supported by this version: use tenant or agent, and day';

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
  per: z.enum(['tenant', 'agent'], RUNS),
  window: z.enum(['day'], RUNS),
});
export type Counter = PolicyCounter;

const NAME_FAULT = `expected a name that matches ${FACT_NAME_PATTERN.source}`;

export const countersSchema: z.ZodType<Counters> = z.record(
  z.string().regex(FACT_NAME_PATTERN),
  counterSchema,
  { error: ({ code }) => (code === 'invalid_key' ? NAME_FAULT : undefined) },
);
/** The counters of a policy set, by name. */
export type Counters = Record<string, Counter>;

/** The problems of counters that only the declared facts show. */
export function counterFaults(counters: Counters, facts: DeclaredFacts): string[] {
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

type Counted = Pick<PolicyInput, 'action' | 'agent' | 'facts'>;

/** The counters that apply to an action; none applies to an outcome. */
export function appliedCounters(
  counters: Counters,
  { action }: Pick<Counted, 'action'>,
): [name: string, counter: Counter][] {
  if (action === null) return [];
  return Object.entries(counters).filter(
    ([, { actions }]) => actions === null || actions.includes(action),
  );
}

/**
 * Identifies the counter of an agent or tenant, in hex; null when the request has no such agent. A
 * changed definition starts at zero, unless only its actions change. Hashed, because the counter
 * outlives the erasure of the requests.
 */
export function counterKey(
  name: string,
  { per, sum, window }: Counter,
  { agent }: Pick<Counted, 'agent'>,
): string | null {
  if (per === 'agent' && agent === null) return null;
  const id = per === 'agent' ? agent!.id : null;
  return documentHash(nativeSha256, { agent: id, name, sum, window });
}

/**
 * The values of the counters that apply to an action, as far as `befores` has them; `after` equals
 * `before` when the counter cannot count the action.
 */
export function budgetsOf<T extends { before: number }>(
  counters: Counters,
  input: Counted,
  befores: Record<string, T>,
): Record<string, T & { after: number }> {
  return Object.fromEntries(
    appliedCounters(counters, input).flatMap(([name, counter]) => {
      const known = Object.hasOwn(befores, name) ? befores[name] : undefined;
      // Recorded values may be altered.
      if (known === undefined || !Number.isSafeInteger(known.before)) return [];
      const after = afterOf(name, counter, input, known.before) ?? known.before;
      return [[name, { ...known, after }]];
    }),
  );
}

const UNITS_PER_ONE = 10_000n;

/** The value with this action; null when the action cannot be counted. */
function afterOf(name: string, counter: Counter, input: Counted, before: number): number | null {
  const addend = addendOf(counter, input.facts);
  if (addend === null || addend < 0n || counterKey(name, counter, input) === null) return null;
  const after = BigInt(before) + addend;
  return after <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(after) : null;
}

function addendOf({ sum }: Counter, facts: Facts): bigint | null {
  if (sum === null) return 1n;
  const value = Object.hasOwn(facts, sum) ? facts[sum] : undefined;
  if (typeof value === 'number') return BigInt(value) * UNITS_PER_ONE;
  if (typeof value !== 'object' || !('decimal' in value)) return null;
  const [whole = '', places = ''] = value.decimal.split('.');
  return BigInt(whole + places.padEnd(4, '0'));
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
    if (known !== undefined && afterOf(name, counter, input, known.before) !== null) return [];
    const { sum } = counter;
    const isMissing = sum !== null && !Object.hasOwn(facts, sum);
    return [REASON_PREFIX + name, ...(isMissing ? [`fact.${sum}`] : [])];
  });
  return [...new Set(reasons)].sort();
}

/** A sentence about a reason of {@link unmetBudgets}; undefined for another reason. */
export function budgetSentence(reason: string): string | undefined {
  if (!reason.startsWith(REASON_PREFIX)) return undefined;
  return `The counter ${reason.slice(REASON_PREFIX.length)} cannot count this action: its amount or agent is missing, its amount is negative, or its value would be too large or is unknown.`;
}
