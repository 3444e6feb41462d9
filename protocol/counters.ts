import { documentHash, type Sha256 } from './hash.js';
import type { Budget, PolicyInput } from './policy-input.js';
import { decimalUnits, type Facts } from './schemas/facts.js';

/** A counter of a policy set. A JSON value. */
export type Counter = {
  /** The counted actions, ascending; null for every action. */
  actions: string[] | null;
  /** The fact that the counter sums; null for a counter of actions. */
  sum: string | null;
  per: 'tenant' | 'agent' | 'run';
  window: 'day' | 'run';
};

/** The counters of a policy set, by name. */
export type Counters = Record<string, Counter>;

/** The part of a policy input that determines how counters change. */
export type Counted = Pick<PolicyInput, 'action' | 'agent' | 'facts'>;

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

export const needsRun = ({ per, window }: Counter): boolean => per === 'run' || window === 'run';

/**
 * Identifies the counter of an agent, tenant or run, in hex; null for a request without the agent or run
 * that the counter needs. The ids are hashed, because a counter outlives the erasure of the requests.
 *
 * @param run the id of the run of the request
 */
export function counterKey(
  sha256: Sha256,
  name: string,
  counter: Counter,
  { agent }: Pick<Counted, 'agent'>,
  run: string | null,
): string | null {
  const { per, sum, window } = counter;
  const id = per === 'tenant' ? null : (agent?.id ?? null);
  const ofRun = needsRun(counter) ? run : null;
  if ((per !== 'tenant' && id === null) || (needsRun(counter) && run === null)) return null;
  return documentHash(sha256, { agent: id, name, per, run: ofRun, sum, window });
}

/** The window of a counter for a request. */
export function windowOf(counter: Counter, day: string, run: string | null): Budget['window'] {
  return needsRun(counter) && (run === null || counter.window === 'run') ? { run } : { day };
}

const lacksRun = ({ window }: Partial<Budget>): boolean =>
  window !== undefined && 'run' in window && window.run === null;

/** The values that policies can refer to. A counter that lacks its run has no value, which denies the action. */
export function inputBudgets(budgets: Record<string, Budget>): PolicyInput['budgets'] {
  return Object.fromEntries(Object.entries(budgets).filter(([, budget]) => !lacksRun(budget)));
}

/**
 * The values of the counters that apply to an action and for which `befores` has a value; `after`
 * equals `before` when the counter cannot count the action.
 */
export function budgetsOf<T extends { before: number; window?: Budget['window'] }>(
  counters: Counters,
  input: Counted,
  befores: Record<string, T>,
): Record<string, T & { after: number }> {
  return Object.fromEntries(
    appliedCounters(counters, input).flatMap(([name, counter]) => {
      const known = Object.hasOwn(befores, name) ? befores[name] : undefined;
      // Omits a counter without a valid value: the database may have been altered.
      if (known === undefined || !Number.isSafeInteger(known.before)) return [];
      const counted = lacksRun(known) ? null : afterOf(counter, input, known.before);
      const after = counted ?? known.before;
      return [[name, { ...known, after }]];
    }),
  );
}

const UNITS_PER_ONE = 10_000n;

/** The counter's value after this action; null if the action cannot be counted. */
export function afterOf(counter: Counter, input: Counted, before: number): number | null {
  const addend = addendOf(counter, input.facts);
  if (addend === null || addend < 0n || (counter.per !== 'tenant' && input.agent === null))
    return null;
  const after = BigInt(before) + addend;
  return after <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(after) : null;
}

function addendOf({ sum }: Counter, facts: Facts): bigint | null {
  if (sum === null) return 1n;
  const value = Object.hasOwn(facts, sum) ? facts[sum] : undefined;
  if (typeof value === 'number') return BigInt(value) * UNITS_PER_ONE;
  if (typeof value !== 'object' || !('decimal' in value)) return null;
  return decimalUnits(value.decimal);
}
