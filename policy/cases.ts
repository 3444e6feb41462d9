import * as z from 'zod';
import { fromUtf8, utf8 } from '#protocol/bytes';
import { parseStrict, type JsonValue } from '#protocol/json';
import { factsSchema } from '#protocol/schemas/facts';
import {
  actionSchema,
  effectSchema,
  environmentSchema,
  hashSchema,
  tenantIdSchema,
  textSchema,
} from '#protocol/schemas/primitives';
import { type PolicyInput, budgetsOf, needsRun } from '#protocol/policy-input';
import { safeParse } from '#protocol/schemas/messages';
import { OperatorError } from '#runtime/process/operator-error';
import type { PolicyFiles } from '#sql/admissions/policies';
import { declaredFacts } from './cedar-context.js';
import { policyFile } from './check.js';
import { type PolicyDecision, hasErred, type PolicyEngine } from './decide.js';

const common = {
  tenant: tenantIdSchema,
  environment: environmentSchema,
  action: actionSchema,
  /** Whether the case is about the second decision, which an approval causes. */
  approved: z.boolean().exactOptional(),
  /** Values of counters before the action; an absent counter has the value 0. */
  budgets: z.record(z.string(), z.strictObject({ before: z.int().min(0) })).optional(),
};

/**
 * Rejects inputs that no request can produce: only execute requests have a fixture, and only agent
 * requests have an agent, tool, facts and run.
 */
const inputSchema = z.discriminatedUnion('lane', [
  z.strictObject({
    ...common,
    lane: z.literal('execute'),
    fixture: z.strictObject({ ref: textSchema, hash: hashSchema.optional() }).optional(),
  }),
  z.strictObject({
    ...common,
    lane: z.literal('agent'),
    agent: z.strictObject({
      id: textSchema,
      framework: textSchema.optional(),
      bound: z.boolean().optional(),
    }),
    run: z.boolean().optional(),
    tool: textSchema.optional(),
    facts: factsSchema.optional(),
  }),
]);

export const policyCaseSchema = z.strictObject({
  name: z.string().min(1),
  input: inputSchema,
  expect: effectSchema,
  /** Expected reasons: policy ids, `fact.<name>` and `budget.<counter>`. If absent, the case accepts any reasons. */
  reasons: z.array(z.string()).optional(),
});
export type PolicyCase = z.infer<typeof policyCaseSchema>;

/** The cases are unusable; the message names the invalid case and its fault. */
export class PolicyCasesError extends OperatorError {}

/** Parses cases from a JSON list, or from JSON objects on separate lines. */
export function parsePolicyCases(bytes: Uint8Array): PolicyCase[] {
  const cases = documentsOf(bytes).map((document, index) => {
    const parsed = safeParse(policyCaseSchema, document);
    if (parsed.success) return parsed.data;
    const issues = parsed.error.issues
      .map(({ path, message }) => `${path.join('.') || 'the case'}: ${message}`)
      .join('; ');
    throw new PolicyCasesError(`case ${index + 1} is invalid: ${issues}`);
  });
  if (cases.length === 0) throw new PolicyCasesError('the file has no cases');
  return cases;
}

function documentsOf(bytes: Uint8Array): JsonValue[] {
  const text = fromUtf8(bytes);
  if (text.trimStart().startsWith('[')) return readJson(text, 'the file') as JsonValue[];
  return text
    .split('\n')
    .flatMap((line, index) => (line.trim() === '' ? [] : [readJson(line, `line ${index + 1}`)]));
}

function readJson(text: string, what: string): JsonValue {
  try {
    return parseStrict(utf8(text));
  } catch (cause) {
    throw new PolicyCasesError(`${what} is not JSON: ${(cause as Error).message}`, { cause });
  }
}

export interface CaseResult {
  name: string;
  action: string;
  expected: { effect: PolicyDecision['effect']; reasons: string[] | null };
  decided: PolicyDecision;
  passed: boolean;
}

export function runPolicyCase(engine: PolicyEngine, one: PolicyCase): CaseResult {
  const { budgets = {} } = one.input;
  const unknown = Object.keys(budgets).find((name) => !Object.hasOwn(engine.counters, name));
  if (unknown !== undefined) {
    throw new PolicyCasesError(`case ${one.name}: the set has no counter ${unknown}`);
  }
  const input = policyInputOf(one);
  const isInRun = one.input.lane === 'agent' && one.input.run === true;
  const known = Object.entries(engine.counters).filter(([, one]) => isInRun || !needsRun(one));
  const beforeOf = (name: string) =>
    Object.hasOwn(budgets, name) ? budgets[name]! : { before: 0 };
  const befores = Object.fromEntries(known.map(([name]) => [name, beforeOf(name)]));
  const decided = engine.decide({
    ...input,
    budgets: budgetsOf(engine.counters, input, befores),
  });
  const reasons = one.reasons === undefined ? null : [...one.reasons].sort();
  const isSame = reasons === null || reasons.join('\n') === decided.reasons.join('\n');
  return {
    name: one.name,
    action: one.input.action,
    expected: { effect: one.expect, reasons },
    decided,
    passed: decided.effect === one.expect && isSame,
  };
}

/** The number of cases that each policy decided, by policy id. A policy that fails to evaluate decides nothing. */
export function coverageOf(
  policies: PolicyFiles['policies'],
  results: readonly CaseResult[],
): Record<string, number> {
  const counts = Object.fromEntries(Object.keys(policies).map((id) => [id, 0]));
  for (const { decided } of results) {
    if (hasErred(decided)) continue;
    for (const id of decided.reasons) if (id in counts) counts[id]! += 1;
  }
  return counts;
}

/**
 * The actions that the facts and counters of a set name. Cases must cover them, because a misspelled
 * action would have no effect.
 */
export function namedActions({ counters = {}, schema }: PolicyFiles): string[] {
  const ofFacts = [...declaredFacts(schema).values()].flatMap(({ requiredFor }) => requiredFor);
  const ofCounters = Object.values(counters).flatMap(({ actions }) => actions ?? []);
  return [...new Set([...ofFacts, ...ofCounters])].sort();
}

/** Why the cases prevent an activation; null if all pass and cover every policy and action. */
export function whyNotCovered(
  policies: PolicyFiles['policies'],
  actions: readonly string[],
  results: readonly CaseResult[],
): string | null {
  const failed = results.find(({ passed }) => !passed);
  if (failed !== undefined) return `the case ${JSON.stringify(failed.name)} fails`;
  const idle = Object.entries(coverageOf(policies, results)).filter(([, count]) => count === 0);
  const unused = actions.filter((name) => results.every(({ action }) => action !== name));
  const missing = [
    ...idle.map(([id]) => policyFile(id)),
    ...unused.map((name) => `action ${name}`),
  ];
  return missing.length === 0 ? null : `no case covers ${missing.join(', ')}`;
}

function policyInputOf({ input }: PolicyCase): PolicyInput {
  const { tenant, environment, lane, action } = input;
  const agent = lane === 'agent' ? input.agent : null;
  const fixture = (lane === 'execute' ? input.fixture : null) ?? null;
  return {
    tenant: { tenant_id: tenant, environment },
    environment,
    lane,
    action,
    agent: agent && {
      id: agent.id,
      framework: agent.framework ?? null,
      bound: agent.bound ?? false,
    },
    tool: (lane === 'agent' ? input.tool : null) ?? null,
    fixture: fixture && { ref: fixture.ref, hash: fixture.hash ?? null },
    facts: (lane === 'agent' ? input.facts : null) ?? {},
    approval: input.approved
      ? { approver: 'policy test', registration_hash: '0'.repeat(64) }
      : null,
    budgets: {},
  };
}
