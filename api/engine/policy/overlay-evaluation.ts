import { setImmediate } from 'node:timers/promises';
import { type CaseResult, type PolicyCase, PolicyCasesError, runPolicyCase } from '#policy/cases';
import {
  combine,
  type OverlayProblem,
  overlayProblems,
  type OverlayRules,
  storedSetOf,
} from '#policy/overlays';
import { type ReplayPolicy, replayPolicies } from '#policy/replay';
import { decidedSince, startSimulation } from '#policy/simulation';
import { MOST_RULES } from '#protocol/schemas/overlays';
import { parseTime } from '#protocol/time';
import { yieldEvery, pacedLimiter } from '#runtime/concurrency';
import { oldestOfNewest, tenantDecidedFrom } from '#sql/admissions/decided';
import type { StoredPolicySet } from '#sql/admissions/policies';
import type { Caller } from '../http/authenticate.js';
import { at, Problem } from '../http/problem.js';
import type { Call } from '../operation.js';

/** Maximum number of admissions in one simulation, which evaluates the newest admissions. */
export const MOST_SIMULATED = 1_000;
const PAGE = 100;

const evaluations = pacedLimiter({ total: 2, perOwner: 1, maxWaiting: 8, timeoutMs: 10_000 });

/**
 * Checks and evaluations block the event loop, so a tenant runs one at a time.
 *
 * @throws BusyError
 */
export const limitEvaluation = <T>({ tenantNo }: Caller, work: () => Promise<T>): Promise<T> =>
  evaluations(tenantNo, work);

const policies = replayPolicies();

export async function opened(base: StoredPolicySet, rules: OverlayRules) {
  const problems = await overlayProblems(base, rules);
  requireFit(problems);
  const set = await combine(base, rules, problems);
  await setImmediate();
  return { set, engine: await policies(storedSetOf(base, set)) };
}

export function requireFit(problems: OverlayProblem[]): void {
  if (problems.length === 0) return;
  throw new Problem('invalid_overlay', {
    errors: problems.slice(0, MOST_RULES).map(({ rule, line, column, message }) => ({
      pointer: rule === null ? '/rules' : `/rules/${rule}`,
      detail: line === null ? message : `line ${line}, column ${column ?? 1}: ${message}`,
    })),
  });
}

/** Rejects cases of another tenant: their results would show how the operator's rules treat that tenant. */
export async function runCases(
  engine: ReplayPolicy,
  { environment, tenantId }: Caller,
  cases: readonly PolicyCase[],
): Promise<CaseResult[]> {
  const results: CaseResult[] = [];
  const yieldIfDue = yieldEvery();
  for (const [index, one] of cases.entries()) {
    const place = `/cases/${index}/input`;
    const { input } = one;
    if (input.tenant !== tenantId) {
      throw invalidCase(`${place}/tenant`, 'must be the tenant of the API key');
    }
    if (input.environment !== environment) {
      throw invalidCase(`${place}/environment`, 'must be the environment of your tenant');
    }
    try {
      results.push(runPolicyCase(engine, one));
    } catch (error) {
      if (!(error instanceof PolicyCasesError)) throw error;
      throw invalidCase(`${place}/budgets`, error.message);
    }
    await yieldIfDue();
  }
  return results;
}

const invalidCase = (pointer: string, detail: string): Problem =>
  new Problem(
    'invalid_field',
    'A case is invalid. Correct the member listed in errors.',
    at(pointer, detail),
  );

export async function simulated(
  { inTenant }: Pick<Call, 'inTenant'>,
  engine: ReplayPolicy,
  since: string,
) {
  const from = parseTime(since);
  const { add, changes, counts } = startSimulation(() => engine, from, {
    recorded: true,
    most: MOST_SIMULATED,
  });
  const yieldIfDue = yieldEvery();
  const oldest = await inTenant(oldestOfNewest, MOST_SIMULATED);
  const complete = oldest === undefined || oldest.at.getTime() < from;
  const read = (first: number) => inTenant(tenantDecidedFrom, first, PAGE);
  let left = MOST_SIMULATED;
  for await (const page of decidedSince(read, oldest?.leafIndex ?? 0)) {
    // The limit ends the loop even if the tenant admits faster than the loop evaluates.
    for (const row of page.slice(0, left)) {
      add(row);
      await yieldIfDue();
    }
    left -= page.length;
    if (left <= 0) break;
  }
  const own = changes.map(({ tenant_id: _, ...change }) => change);
  return { since, complete, ...counts, changes: own };
}
