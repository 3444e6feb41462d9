import { type DeclaredFacts, declaredFacts, factFaults } from '#policy/facts';
import type { Facts } from '#protocol/schemas/facts';
import { activePolicy, readPolicySet } from '#sql/admissions/policies';
import { findAdmitted, type Lane } from '#sql/admissions/intake';
import type { EngineContext } from '../context.js';
import { Problem } from '../http/problem.js';

interface StatedFacts {
  facts: Facts;
  lane: Lane;
  /** Lower-case hex. */
  requestHash: string;
}

/**
 * Returns a problem for each request with facts that the active policy set does not declare, else
 * null.
 */
export type CheckFacts = (
  tenantNo: number,
  requests: readonly StatedFacts[],
) => Promise<(Problem | null)[]>;

/** The engine caches the active set this long; workers check the facts again. */
const FRESH_MS = 1_000;

/** The facts that the active policy set declares; null while no set is active. */
export type ReadDeclaredFacts = (maxAgeMs?: number) => Promise<DeclaredFacts | null>;

export function createReadDeclaredFacts({ sql }: Pick<EngineContext, 'sql'>): ReadDeclaredFacts {
  let digest: Buffer | null = null;
  let declared: DeclaredFacts | null = null;
  let readAt = -Infinity;

  return async (maxAgeMs = 0) => {
    if (performance.now() - readAt <= maxAgeMs) return declared;
    const active = await activePolicy(sql);
    if (active === null || digest === null || !active.equals(digest)) {
      const stored = active && (await readPolicySet(sql, active));
      declared = stored && declaredFacts(stored.files.schema);
      digest = active;
    }
    readAt = performance.now();
    return declared;
  };
}

export function createFactCheck(
  { tenantSql }: Pick<EngineContext, 'tenantSql'>,
  readDeclaredFacts: ReadDeclaredFacts,
): CheckFacts {
  return async (tenantNo, requests) => {
    const problemsUnder = (known: DeclaredFacts | null): (Problem | null)[] =>
      requests.map(({ facts }) => known && factProblem(known, facts));
    const isSound = (problems: (Problem | null)[]): boolean =>
      problems.every((problem) => problem === null);
    if (requests.every(({ facts }) => Object.keys(facts).length === 0)) return problemsUnder(null);
    const problems = problemsUnder(await readDeclaredFacts(FRESH_MS));
    if (isSound(problems)) return problems;
    const current = problemsUnder(await readDeclaredFacts());
    if (isSound(current)) return current;
    // A repeated request gets the first receipt, whatever set is active now.
    const admitted = await tenantSql.run(tenantNo, (own) => findAdmitted(own, tenantNo, requests));
    return current.map((problem, i) => (admitted[i] === null ? problem : null));
  };
}

function factProblem(declared: DeclaredFacts, facts: Facts): Problem | null {
  const faults = factFaults(declared, facts);
  if (faults.length === 0) return null;
  const errors = faults.map(({ name, expected }) => ({
    pointer: `/facts/${name}`,
    detail: expected,
  }));
  return new Problem('invalid_fact', { errors });
}
