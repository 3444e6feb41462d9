import { orderedText } from './json.js';
import { type Facts, decimalUnits } from './schemas/facts.js';
import type { Environment } from './schemas/primitives.js';
import { documentHash, type Sha256 } from './hash.js';

/** The approval that causes a second decision. */
export interface PolicyApproval {
  approver: string;
  registration_hash: string;
}

/**
 * The input of a policy decision, without its salt: only what policies can refer to, and no identifier
 * or time of the request, so equal inputs are common and share a decision.
 */
export interface PolicyInput {
  tenant: { tenant_id: string; environment: Environment };
  environment: Environment;
  lane: 'execute' | 'agent';
  /** The action; null for an outcome or a close, which no policy decides. */
  action: string | null;
  agent: { id: string; framework: string | null; bound: boolean } | null;
  tool: string | null;
  fixture: { ref: string; hash: string | null } | null;
  facts: Facts;
  approval: PolicyApproval | null;
  /** The counters that apply to the action, by name, except run counters if the request has no run. */
  budgets: Record<string, Omit<Budget, 'window'>>;
}

/** The value of a counter for one action: a count, or a sum in units of 10⁻⁴. A JSON value. */
export type Budget = {
  /** The UTC day of acceptance, or the run; `run` is null when the request has no run. */
  window: { day: string } | { run: string | null };
  before: number;
  /** Value after this action. The counter changes only if the action is admitted. */
  after: number;
};

/** Keyed by counter name. */
export type Budgets = Record<string, Budget>;

/**
 * The RFC 8785 form of `svc.policy.input/1.1`, whose hash is in the AEP. The salt keeps the hash from
 * confirming a guessed input; without a salt, equal inputs have equal texts.
 */
export function policyInputText(input: PolicyInput, salt?: string): string {
  const { action, agent, approval, budgets, environment, facts, fixture, lane, tenant, tool } =
    input;
  return orderedText({
    action,
    agent: agent && { bound: agent.bound, framework: agent.framework, id: agent.id },
    approval: approval && {
      approver: approval.approver,
      registration_hash: approval.registration_hash,
    },
    budgets: byName(budgets, ({ after, before }) => ({ after, before })),
    environment,
    facts: byName(facts, (value) => value),
    fixture: fixture && { hash: fixture.hash, ref: fixture.ref },
    lane,
    ...(salt !== undefined && { salt }),
    schema_version: 'svc.policy.input/1.1',
    tenant: { environment: tenant.environment, tenant_id: tenant.tenant_id },
    tool,
  });
}

function byName<T, U>(members: Record<string, T>, of: (member: T) => U): Record<string, U> {
  const sorted = Object.entries(members).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(sorted.map(([name, member]) => [name, of(member)]));
}

/** A counter of a policy set. A JSON value. */
export type Counter = {
  /** The counted actions, ascending; null for every action. */
  actions: string[] | null;
  /** The fact that the counter sums; null for a counter of actions. */
  sum: string | null;
  per: 'tenant' | 'agent' | 'run';
  window: 'day' | 'run';
};

export type Counters = Record<string, Counter>;

/** The part of a policy input that determines how counters change. */
export type Counted = Pick<PolicyInput, 'action' | 'agent' | 'facts'>;

/** The counters that apply to an action; no counter applies to an outcome or a close. */
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

/** The values that policies can refer to. Without a run, a run counter has no value, so the action is denied. */
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
