import { type DeclaredFacts, declaredFacts, factFaults } from '#policy/cedar-context';
import {
  findParents,
  parentFault,
  type Parent,
  readRunStates,
  type RunPlace,
  type RunState,
} from '#sql/admissions/references';
import type { AgentEnvelope } from '#protocol/schemas/admission';
import type { Facts } from '#protocol/schemas/facts';
import { pacedLimiter } from '#runtime/concurrency';
import { findAdmitted, type Lane } from '#sql/admissions/intake';
import { activePolicy, readPolicySet } from '#sql/admissions/policies';
import type { EngineContext, QueryTenant } from '../context.js';
import { at, Problem } from '../http/problem.js';

// A worker repeats these checks under the append lock; the checks of the engine reject a request at once.

export interface RegistryCheckInput {
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

type Requests = ReadonlyMap<number, RegistryCheckInput>;
type Problems = Map<number, Problem>;

/** Checks requests against the registry, and returns the problems of rejected requests by index. */
export type CheckRegistry = (tenantNo: number, requests: Requests) => Promise<Problems>;

/** Time for which the engine caches the active policy set. */
const FRESH_MS = 1_000;

interface ActiveFacts {
  digest: Buffer;
  facts: DeclaredFacts;
}

/** Returns null while no policy set is active. */
export type ReadDeclaredFacts = (maxAgeMs?: number) => Promise<ActiveFacts | null>;

export function createReadDeclaredFacts({ sql }: Pick<EngineContext, 'sql'>): ReadDeclaredFacts {
  let active: ActiveFacts | null = null;
  let readAt = -Infinity;

  return async (maxAgeMs = 0) => {
    if (performance.now() - readAt <= maxAgeMs) return active;
    const digest = await activePolicy(sql);
    if (digest === null || active?.digest.equals(digest) !== true) {
      const stored = digest && (await readPolicySet(sql, digest));
      active = stored && { digest: stored.digest, facts: declaredFacts(stored.files.schema) };
    }
    readAt = performance.now();
    return active;
  };
}

export function createRegistryCheck(
  queryTenant: QueryTenant,
  readDeclaredFacts: ReadDeclaredFacts,
): CheckRegistry {
  return async (tenantNo, requests) => {
    const runs = await runProblems(queryTenant, tenantNo, requests);
    const parents = await parentProblems(queryTenant, tenantNo, requests);
    const facts = await factProblems(queryTenant, readDeclaredFacts, tenantNo, requests);
    // Each request gets one problem: of its facts, else of its parent, else of its run.
    return new Map([...runs, ...parents, ...facts]);
  };
}

/** The problems of requests with facts that the active policy set does not declare. */
async function factProblems(
  queryTenant: QueryTenant,
  readDeclaredFacts: ReadDeclaredFacts,
  tenantNo: number,
  requests: Requests,
): Promise<Problems> {
  const withFacts = [...requests].filter(([, { facts }]) => Object.keys(facts).length > 0);
  const faulty = (active: ActiveFacts | null) =>
    withFacts.flatMap(([index, request]) => {
      const problem = active && factProblem(active.facts, request.facts);
      return problem === null ? [] : [{ index, request, problem }];
    });
  if (withFacts.length === 0 || faulty(await readDeclaredFacts(FRESH_MS)).length === 0) {
    return new Map();
  }
  const current = faulty(await readDeclaredFacts());
  if (current.length === 0) return new Map();
  // A repeated request gets the first receipt, whatever policy set is active now.
  const repeated = current.map(({ request }) => request);
  const admitted = await queryTenant(tenantNo, findAdmitted, repeated);
  const left = current.filter((_, i) => admitted[i] === null);
  return new Map(left.map(({ index, problem }) => [index, problem]));
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
async function parentProblems(
  queryTenant: QueryTenant,
  tenantNo: number,
  requests: Requests,
): Promise<Problems> {
  const children = [...requests].flatMap(([index, { parent, ...request }]) =>
    parent === null ? [] : [{ ...request, ...parent, index }],
  );
  const found: Problems = new Map();
  for (let start = 0; start < children.length; start += PARENTS_PER_QUERY) {
    const some = children.slice(start, start + PARENTS_PER_QUERY);
    const proofIds = some.map(({ proofId }) => proofId);
    const parents = await queryTenant(tenantNo, findParents, proofIds);
    some.forEach(({ index, kind }, i) => {
      const problem = parentProblem(kind, parents[i] ?? null);
      if (problem !== null) found.set(index, problem);
    });
  }
  if (found.size === 0) return found;
  // A repeated request gets the first receipt, even if its parent has been erased since.
  const rejected = children.filter(({ index }) => found.has(index));
  const admitted = await queryTenant(tenantNo, findAdmitted, rejected);
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
    'This tenant has no proof with the id in parent_proof_id, or the payload of the proof was erased. If the parent is pending, wait until it is decided.',
    'must be the id of a proof of this tenant whose payload is not erased',
  ],
  parent_not_admitted: [
    'The parent of an outcome must be the admission of an action. Send the proof id of the admission.',
    'must be the id of an admitted action',
  ],
} as const;

/** Limits the check of a `close`, which reads all requests of its run. */
const closing = pacedLimiter({ total: 4, perOwner: 1, maxWaiting: 1_000, timeoutMs: 10_000 });

/**
 * The problems, by index, of requests in closed runs and of `close` requests of incomplete runs. The insert, not this
 * check, detects that a `seq` is in use.
 */
async function runProblems(
  queryTenant: QueryTenant,
  tenantNo: number,
  requests: Requests,
): Promise<Problems> {
  const inRuns = [...requests].flatMap(([index, { run, ...request }]) =>
    run === null ? [] : [{ ...request, index, run }],
  );
  if (inRuns.length === 0) return new Map();
  const read = () => queryTenant(tenantNo, readRunStates, inRuns);
  const states = await (inRuns.some(({ run }) => run.closes) ? closing(tenantNo, read) : read());
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
    `The run does not consist of ${seq} decided requests: ${fault}. Nothing was closed. Send the close when decided requests have all numbers below its seq; the number of a rejected request can be used again.`,
    at('/run/seq', 'must be the number of requests in the run'),
  );
}
