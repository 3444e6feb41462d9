import { setFlagsFromString } from 'node:v8';
import * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import { type PolicyInput, type Counters, budgetsOf, inputBudgets } from '#protocol/policy-input';
import type { Effect } from '#protocol/status';
import type { PolicyFiles, StoredPolicySet } from '#sql/admissions/policies';
import { requiringApproval } from './approval.js';
import {
  contextUses,
  usedText,
  unmetBudgets,
  cedarFacts,
  type DeclaredFacts,
  declaredFacts,
  unmetFacts,
  type Befores,
} from './cedar-context.js';
import { CEDAR_VERSION, makePolicySet, messages, PolicySetError } from './policy-set.js';
import { canonicalize, parseStrict, type JsonValue } from '#protocol/json';
import {
  agentEnvelopeSchema,
  type AgentEnvelope,
  executeRequestSchema,
  type ExecuteRequest,
} from '#protocol/schemas/admission';
import type { ClosedRun } from '#protocol/schemas/aep';
import { nativeTextHash } from '#runtime/crypto/node';
import {
  aepOf,
  type BuiltAep,
  type Decision,
  type PinnedIntake,
  policyInputOf,
  readStoredApproval,
} from '#sql/proofs/rebuild-aep';

// Disables inlining: Node 20 crashes when V8 deoptimizes an inlined WebAssembly call, which happens with many tenants.
setFlagsFromString('--no-turbo-inline-js-wasm-calls');

export interface PolicyDecision {
  effect: Effect;
  /** Policy ids, `fact.<name>`, `budget.<counter>`; sorted, because Cedar's order varies. */
  reasons: string[];
}

const erred = new WeakSet<PolicyDecision>();

/** Whether a decision denies because policies failed to evaluate; the reasons are the ids of those policies. */
export const hasErred = (decision: PolicyDecision): boolean => erred.has(decision);

/** One prepared policy set: a pure function from input to decision. */
export interface PolicyEngine {
  digest: string;
  engineVersion: string;
  counters: Counters;
  decide(input: PolicyInput): PolicyDecision;
}

const MEMO_LIMIT = 10_000;
/** Decisions of all prepared sets, by digest and used part of the input. */
const memo = new Map<string, PolicyDecision>();

/**
 * Recomputes the digest, so a set made for another Cedar version is rejected.
 *
 * @param loaded a {@link textsLoader}, if the program alternates between more than `LOADED_SETS` sets
 * @throws PolicySetError
 */
export async function preparePolicyEngine(
  stored: StoredPolicySet,
  loaded = sharedLoader,
): Promise<PolicyEngine> {
  const set = await makePolicySet(stored.files);
  if (!set.digest.equals(stored.digest)) {
    throw new PolicySetError(
      `policy set ${stored.digest.toString('hex')} does not match its texts and Cedar ${CEDAR_VERSION}`,
    );
  }
  const digest = set.digest.toString('hex');
  const { files } = stored;
  const { counters, facts } = loaded(digest, files);
  const uses = contextUses(files.policies);
  return {
    digest,
    engineVersion: CEDAR_VERSION,
    counters,
    decide(input) {
      const early = decidedEarly({ facts, counters }, input);
      if (early !== null) return early;
      const call = callOf(input);
      const { context, principal, resource } = call;
      const others = [digest, principal.id, input.tenant.environment, resource.id];
      const key = JSON.stringify([...others, input.approval !== null]) + usedText(uses, context);
      const known = memo.get(key);
      if (known !== undefined) return known;
      const { decision, cacheable } = decideCall(loaded(digest, files), input, call);
      if (cacheable) {
        if (memo.size >= MEMO_LIMIT) memo.clear();
        memo.set(key, decision);
      }
      return decision;
    },
  };
}

/** A policy set loaded into Cedar under `name`. */
export interface PreparedTexts {
  name: string;
  facts: DeclaredFacts;
  counters: Counters;
  waived: ReadonlySet<string>;
}

/** Loads texts into Cedar under `name`, in place of earlier texts of this name. @throws PolicySetError */
export function preparse(name: string, files: PolicyFiles): PreparedTexts {
  const waived = new Set(requiringApproval(files.policies));
  const kept = Object.fromEntries(Object.entries(files.policies).filter(([id]) => !waived.has(id)));
  const texts =
    waived.size > 0
      ? { [name]: files.policies, [waivedName(name)]: kept }
      : { [name]: files.policies };
  for (const [id, staticPolicies] of Object.entries(texts)) {
    const answer = cedar.preparsePolicySet(id, { staticPolicies });
    if (answer.type !== 'success') throw new PolicySetError(messages(answer.errors));
  }
  return { name, facts: declaredFacts(files.schema), counters: files.counters ?? {}, waived };
}

/** The name under which Cedar has a set's texts without the policies that an approval waives. */
const waivedName = (name: string): string => `${name} approved`;

interface Evaluation {
  decision: PolicyDecision;
  cacheable: boolean;
}

/**
 * Keeps at most `limit` texts loaded, by key: Cedar never frees memory, so new texts replace the least
 * recently used ones. Look the texts up for each decision, and use them before the next await.
 */
export function textsLoader<T extends PreparedTexts | null>(
  limit: number,
  load: (name: string, files: PolicyFiles) => T,
): (key: string, files: PolicyFiles) => T {
  loaders += 1;
  const free = Array.from({ length: limit }, (_, at) => `${loaders}-${at}`);
  const places = new Map<string, { name: string; texts: T }>();

  return (key, files) => {
    const known = places.get(key);
    // Reinserts the texts as the most recently used ones.
    places.delete(key);
    const [oldest] = places;
    if (known === undefined && free.length === 0 && oldest !== undefined) {
      places.delete(oldest[0]);
      free.push(oldest[1].name);
    }
    const place = known ?? { name: free[0]!, texts: load(free[0]!, files) };
    if (known === undefined) free.shift();
    places.set(key, place);
    return place.texts;
  };
}

/** Number of loaders so far; as a prefix of names in Cedar, it keeps the names of loaders distinct. */
let loaders = 0;

/** Number of loaded sets: enough for the operator's sets and those of recently active tenants with an overlay. */
export const LOADED_SETS = 256;
const sharedLoader = textsLoader(LOADED_SETS, preparse);

const deny = (...reasons: string[]): PolicyDecision => ({ effect: 'DENY', reasons });

/**
 * Evaluates one input, failing closed. Cedar skips a policy whose evaluation fails, so a failing
 * `forbid` would not prevent an allow: any error denies, and only an explicit allow admits.
 */
export function evaluate(texts: PreparedTexts, input: PolicyInput): PolicyDecision {
  return decidedEarly(texts, input) ?? decideCall(texts, input, callOf(input)).decision;
}

/** The decision on an input for which no policy is evaluated; null for any other input. */
function decidedEarly(
  { facts, counters }: Pick<PreparedTexts, 'facts' | 'counters'>,
  input: PolicyInput,
): PolicyDecision | null {
  const { action } = input;
  // Admits every outcome and `close`: they report facts and request no action, and a denial would only hide the report.
  if (action === null) return { effect: 'ADMIT', reasons: [] };
  if (!isWellTyped(input)) return deny();
  const unmet = [...unmetFacts(facts, action, input.facts), ...unmetBudgets(counters, input)];
  return unmet.length === 0 ? null : deny(...[...new Set(unmet)].sort());
}

function decideCall(
  { name, waived }: PreparedTexts,
  { approval }: PolicyInput,
  call: Call,
): Evaluation {
  const evaluated = (preparsedPolicySetId: string) => authorize({ ...call, preparsedPolicySetId });
  if (waived.size > 0 && approval !== null) return evaluated(waivedName(name));
  const found = evaluated(name);
  const reasons = found.decision.reasons.filter((reason) => waived.has(reason));
  if (hasErred(found.decision) || found.decision.effect === 'ADMIT' || reasons.length === 0)
    return found;
  // Evaluates again without the policies that an approval waives: if other policies deny
  // or fail, the denial remains.
  const approved = evaluated(waivedName(name));
  if (approved.decision.effect !== 'ADMIT') {
    return { ...found, cacheable: found.cacheable && approved.cacheable };
  }
  return { decision: { effect: 'REQUIRE_APPROVAL', reasons }, cacheable: true };
}

function authorize(call: cedar.StatefulAuthorizationCall): Evaluation {
  let answer: cedar.AuthorizationAnswer;
  try {
    answer = cedar.statefulIsAuthorized(call);
  } catch {
    // Not cached, because Cedar failed and may succeed with the next call.
    return { decision: deny(), cacheable: false };
  }
  // Not cached: a value that no rule uses may have caused the failure, and the cache key omits such values.
  if (answer.type !== 'success') return { decision: deny(), cacheable: false };
  const { decision, diagnostics } = answer.response;
  if (diagnostics.errors.length > 0) {
    const failed = diagnostics.errors.map((error) => error.policyId);
    const decision = deny(...[...new Set(failed)].sort());
    erred.add(decision);
    return { decision, cacheable: true };
  }
  const effect = decision === 'allow' ? 'ADMIT' : 'DENY';
  return { decision: { effect, reasons: [...diagnostics.reason].sort() }, cacheable: true };
}

/**
 * Whether the attributes have the types that the schema declares. Cedar compares a value of a wrong type
 * without an error, which could skip a `forbid`.
 */
function isWellTyped({ action, agent, environment, fixture, lane, tenant, tool }: PolicyInput) {
  const texts: unknown[] = [action, environment, lane, tenant.tenant_id, tenant.environment];
  if (tool !== null) texts.push(tool);
  if (agent !== null) texts.push(agent.id, agent.framework ?? '');
  if (fixture !== null) texts.push(fixture.ref, fixture.hash ?? '');
  const isBool = agent === null || typeof agent.bound === 'boolean';
  return isBool && texts.every((text) => typeof text === 'string');
}

type Call = ReturnType<typeof callOf>;

function callOf(input: PolicyInput) {
  const context: Record<string, cedar.CedarValueJson> = {
    environment: input.environment,
    lane: input.lane,
    facts: cedarFacts(input.facts),
    budgets: Object.fromEntries(
      Object.entries(input.budgets).map(([counter, { before, after }]) => [
        counter,
        { before, after },
      ]),
    ),
  };
  if (input.agent !== null) {
    const { id, framework, bound } = input.agent;
    context['agent'] = framework === null ? { id, bound } : { id, framework, bound };
  }
  if (input.tool !== null) context['tool'] = input.tool;
  if (input.fixture !== null) {
    const { ref, hash } = input.fixture;
    context['fixture'] = hash === null ? { ref, resolved: false } : { ref, resolved: true, hash };
  }
  const principal = { type: 'Svc::Tenant', id: input.tenant.tenant_id };
  return {
    principal,
    action: { type: 'Svc::Action', id: 'admit' },
    // Never '' in an evaluation: `decidedEarly` decides inputs without an action.
    resource: { type: 'Svc::Operation', id: input.action ?? '' },
    context,
    entities: [{ uid: principal, attrs: { environment: input.tenant.environment }, parents: [] }],
    // `isWellTyped` and `unmetFacts` check the types in a fraction of the time that Cedar takes.
    validateRequest: false,
  };
}

/** The unsigned AEP of an admission, and the decision in it. */
export interface DerivedAep extends BuiltAep {
  decision: Decision;
}

/**
 * An intake row with its request, the policy input without counter values, and the id of the run or null.
 *
 * @throws IntakeMismatchError
 */
export function readIntake(intake: PinnedIntake) {
  const document = parseStrict(intake.request);
  // Hashes the canonical form: a compromised engine could store a second spelling of a request to admit it twice.
  const requestHash = nativeTextHash(canonicalize(document));
  if (requestHash !== intake.requestHash.toString('hex')) {
    throw new IntakeMismatchError(
      'the hash of the stored request differs from the hash at acceptance',
    );
  }
  const request = readRequest(intake, document);
  const run = 'run' in request ? request.run.id : null;
  return { intake, request, input: policyInputOf(intake, request), run };
}

/**
 * A pure function of the intake row, its policy set, the key id and the counter values: workers
 * decide with it, and replay repeats the decision. Only the AEP of a close also depends on the log.
 *
 * @param befores the counter values before this action
 */
export function deriveAep(
  { intake, request, input: pinned }: ReturnType<typeof readIntake>,
  policy: PolicyEngine,
  keyId: string,
  befores: Befores,
  closedRun: ClosedRun | null = null,
): DerivedAep {
  const budgets = budgetsOf(policy.counters, pinned, befores);
  const input = { ...pinned, budgets: inputBudgets(budgets) };
  const decision = {
    ...(rejectionIn(intake) ?? policy.decide(input)),
    budgets,
    engineVersion: policy.engineVersion,
    keyId,
    closedRun,
  };
  // Takes the digest of the evaluated set: a replay may evaluate a set other than the pinned one.
  const decided = { ...intake, policyDigest: Buffer.from(policy.digest, 'hex') };
  return { ...aepOf(decided, request, decision, input), decision };
}

/** If the approver rejected the action, a denial with the pending proof's reasons, without evaluation; else null. */
export function rejectionIn({
  approval,
}: Pick<PinnedIntake, 'approval'>): Pick<Decision, 'effect' | 'reasons'> | null {
  const stored = readStoredApproval(approval);
  if (stored?.envelope.statement.decision !== 'reject') return null;
  return { effect: 'DENY', reasons: stored.reasons };
}

export function readRequest(
  { lane, tenantId }: Pick<PinnedIntake, 'lane' | 'tenantId'>,
  document: JsonValue,
): ExecuteRequest | AgentEnvelope {
  const schema = { 1: executeRequestSchema, 2: agentEnvelopeSchema }[lane as number];
  if (schema === undefined) {
    // A newer worker may know the type, so the admission stays pending.
    throw new Error(`this version does not know request type ${String(lane)}`);
  }
  const request = schema.parse(document);
  if (request.tenant_id === tenantId) return request;
  throw new IntakeMismatchError(
    'the request names a tenant other than the tenant of its admission',
  );
}

/** The stored admission differs from the accepted one, so it must not be committed. */
export class IntakeMismatchError extends Error {}
