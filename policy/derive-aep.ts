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
import { budgetsOf, inputBudgets } from '#protocol/policy-input';
import type { Befores } from './cedar-context.js';
import type { PolicyEngine } from './decide.js';

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
