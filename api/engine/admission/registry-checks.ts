import { type DeclaredFacts, declaredFacts, factFaults } from '#policy/facts';
import { parentFault } from '#policy/parent';
import { incompletenessOf } from '#policy/run';
import type { AgentEnvelope } from '#protocol/schemas/admission';
import type { Facts } from '#protocol/schemas/facts';
import { findAdmitted, findParents, type Lane, type Parent } from '#sql/admissions/intake';
import { activePolicy, readPolicySet } from '#sql/admissions/policies';
import { readRunStates, type RunPlace, type RunState } from '#sql/admissions/runs';
import type { EngineContext } from '../context.js';
import { at, Problem } from '../http/problem.js';

// A worker repeats these checks under the append lock. The engine makes them to reject a request at once.

/** The parts of a request that are checked against the registry. */
export interface Checked {
  lane: Lane;
  /** Lower-case hex. */
  requestHash: string;
  facts: Facts;
  parent: NamedParent | null;
  run: RunPlace | null;
}

export interface NamedParent {
  kind: Exclude<AgentEnvelope['kind'], 'close'>;
  proofId: string;
}

type TenantContext = Pick<EngineContext, 'tenantSql'>;
type Requests = Iterable<readonly [index: number, request: Checked]>;

/** Returns for each request null, or a problem if the active policy set does not declare its facts. */
export type CheckFacts = (
  tenantNo: number,
  requests: readonly Checked[],
) => Promise<(Problem | null)[]>;

/** Time for which the engine caches the active policy set. */
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
  { tenantSql }: TenantContext,
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

const PARENTS_PER_QUERY = 1_000;

/** The problems of new requests whose parent proof is missing or not an admitted action, by index. */
export async function parentProblems(
  { tenantSql }: TenantContext,
  tenantNo: number,
  requests: Requests,
): Promise<Map<number, Problem>> {
  const children = [...requests].flatMap(([index, { parent, ...request }]) =>
    parent === null ? [] : [{ ...request, ...parent, index }],
  );
  const found = new Map<number, Problem>();
  for (let start = 0; start < children.length; start += PARENTS_PER_QUERY) {
    const some = children.slice(start, start + PARENTS_PER_QUERY);
    const proofIds = some.map(({ proofId }) => proofId);
    const parents = await tenantSql.run(tenantNo, (sql) => findParents(sql, tenantNo, proofIds));
    some.forEach(({ index, kind }, i) => {
      const problem = parentProblem(kind, parents[i] ?? null);
      if (problem !== null) found.set(index, problem);
    });
  }
  if (found.size === 0) return found;
  // A repeated request gets the first receipt, even if its parent has been erased since.
  const rejected = children.filter(({ index }) => found.has(index));
  const admitted = await tenantSql.run(tenantNo, (sql) => findAdmitted(sql, tenantNo, rejected));
  rejected.forEach(({ index }, i) => {
    if (admitted[i] !== null) found.delete(index);
  });
  return found;
}

function parentProblem(kind: NamedParent['kind'], parent: Parent | null): Problem | null {
  const code = parentFault(kind, parent);
  if (code === null) return null;
  const [detail, fault] = PARENT_FAULTS[code];
  return new Problem(code, detail, at('/parent_proof_id', fault));
}

const PARENT_FAULTS = {
  parent_not_found: [
    'This tenant has no proof with the id in parent_proof_id, or the payload of the proof was erased. If the admission is pending, wait until it is decided.',
    'must be the id of a proof of this tenant whose payload is not erased',
  ],
  parent_not_admitted: [
    'The parent of an outcome must be the admission of an action. Send the proof id of the admission.',
    'must be the id of an admitted action',
  ],
} as const;

/**
 * The problems of requests in closed runs, and of closes of incomplete runs, by index. The insert,
 * not this check, detects that a `seq` is in use.
 */
export async function runProblems(
  { tenantSql }: TenantContext,
  tenantNo: number,
  requests: Requests,
): Promise<Map<number, Problem>> {
  const inRuns = [...requests].flatMap(([index, { run, ...request }]) =>
    run === null ? [] : [{ ...request, index, run }],
  );
  if (inRuns.length === 0) return new Map();
  const states = await tenantSql.run(tenantNo, (sql) =>
    readRunStates(sql, tenantNo, inRuns, incompletenessOf),
  );
  return new Map(
    inRuns.flatMap(({ index, run }, i) => {
      const problem = runProblem(run, states[i]!);
      return problem === null ? [] : [[index, problem]];
    }),
  );
}

function runProblem({ seq }: RunPlace, { fault, isClosed, isRepeat }: RunState): Problem | null {
  if (isRepeat) return null;
  if (isClosed) return new Problem('run_closed');
  if (fault === null) return null;
  return new Problem(
    'run_incomplete',
    `The run does not consist of ${seq} decided requests: ${fault}. Nothing was closed. Send the close when each request has an answer.`,
    at('/run/seq', 'must be the number of requests in the run'),
  );
}
