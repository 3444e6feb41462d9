import * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import { canonicalize } from '#protocol/canonical-json';
import type { PolicyFiles, StoredPolicySet } from '#sql/admissions/policies';
import { CEDAR_VERSION, makePolicySet, PolicySetError } from './policy-set.js';
import { policyInputJson, type PolicyInput } from './input.js';

export interface Decision {
  effect: 'ADMIT' | 'DENY';
  /** Ids of the deciding policies, sorted: the engine's order varies between equal calls. */
  reasons: string[];
}

/** One prepared policy set: a pure function from input to decision. */
export interface PolicyEngine {
  digest: string;
  engineVersion: string;
  /** Pass `canonical`, the input's RFC 8785 form, if it is already computed. */
  decide(input: PolicyInput, canonical?: string): Decision;
}

const MEMO_LIMIT = 10_000;

/**
 * Prepares a stored set. Recomputes its digest from its texts and this engine, so a set of another
 * engine version is rejected and never run.
 *
 * @throws PolicySetError
 */
export async function preparePolicyEngine(stored: StoredPolicySet): Promise<PolicyEngine> {
  const set = await makePolicySet(stored.files);
  if (!set.digest.equals(stored.digest)) {
    throw new PolicySetError(
      `policy set ${stored.digest.toString('hex')} does not match its texts and Cedar ${CEDAR_VERSION}`,
    );
  }
  const digest = set.digest.toString('hex');
  preparse(digest, stored.files);
  const memo = new Map<string, Decision>();
  return {
    digest,
    engineVersion: CEDAR_VERSION,
    decide(input, canonical = canonicalize(policyInputJson(input))) {
      const known = memo.get(canonical);
      if (known !== undefined) return known;
      const { decision, cacheable } = evaluate(digest, input);
      if (cacheable) {
        if (memo.size >= MEMO_LIMIT) memo.clear();
        memo.set(canonical, decision);
      }
      return decision;
    },
  };
}

/**
 * Loads texts into the engine under a name, replacing earlier ones.
 *
 * @throws PolicySetError
 */
export function preparse(name: string, files: PolicyFiles): void {
  const answers = [
    cedar.preparseSchema(name, files.schema),
    cedar.preparsePolicySet(name, { staticPolicies: files.policies }),
  ];
  for (const answer of answers) {
    if (answer.type !== 'success') {
      throw new PolicySetError(answer.errors.map((error) => error.message).join('; '));
    }
  }
}

/** An outcome reports on an admitted action; denying it would only hide the outcome. */
const OUTCOME_DECISION: Decision = { effect: 'ADMIT', reasons: [] };

/**
 * Evaluates one input, failing closed. Cedar skips a policy that errs, so an erring `forbid` would
 * leave an allow in force: any error is DENY, and so is everything but an explicit allow.
 */
export function evaluate(
  name: string,
  input: PolicyInput,
): { decision: Decision; cacheable: boolean } {
  const { action } = input;
  if (action === null) return { decision: OUTCOME_DECISION, cacheable: true };
  let answer: cedar.AuthorizationAnswer;
  try {
    answer = cedar.statefulIsAuthorized(callFor(name, { ...input, action }));
  } catch {
    // The engine failed; the next call may succeed.
    return { decision: { effect: 'DENY', reasons: [] }, cacheable: false };
  }
  if (answer.type !== 'success') {
    return { decision: { effect: 'DENY', reasons: [] }, cacheable: true };
  }
  const { decision, diagnostics } = answer.response;
  if (diagnostics.errors.length > 0) {
    const erred = diagnostics.errors.map((error) => error.policyId);
    return { decision: { effect: 'DENY', reasons: [...new Set(erred)].sort() }, cacheable: true };
  }
  const effect = decision === 'allow' ? 'ADMIT' : 'DENY';
  return { decision: { effect, reasons: [...diagnostics.reason].sort() }, cacheable: true };
}

function callFor(
  name: string,
  input: PolicyInput & { action: string },
): cedar.StatefulAuthorizationCall {
  const context: Record<string, cedar.CedarValueJson> = {
    environment: input.environment,
    lane: input.lane,
  };
  if (input.agent !== null) {
    const { id, framework } = input.agent;
    context['agent'] = framework === null ? { id } : { id, framework };
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
    resource: { type: 'Svc::Operation', id: input.action },
    context,
    entities: [{ uid: principal, attrs: { environment: input.tenant.environment }, parents: [] }],
    preparsedPolicySetId: name,
    preparsedSchemaName: name,
    validateRequest: true,
  };
}
