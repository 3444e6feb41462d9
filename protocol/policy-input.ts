import { orderedText } from './json.js';
import type { Facts } from './schemas/facts.js';
import type { Environment } from './schemas/primitives.js';

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
  /** The action; null for an outcome, which no policy decides. */
  action: string | null;
  agent: { id: string; framework: string | null; bound: boolean } | null;
  tool: string | null;
  fixture: { ref: string; hash: string | null } | null;
  facts: Facts;
  approval: PolicyApproval | null;
  /** The counters that apply to the action, keyed by name, except those that lack their run. */
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
