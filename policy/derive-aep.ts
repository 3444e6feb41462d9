import { canonicalize, parseStrict, type JsonValue } from '#protocol/json';
import {
  agentEnvelopeSchema,
  type AgentEnvelope,
  executeRequestSchema,
  type ExecuteRequest,
} from '#protocol/schemas/admission';
import { nativeTextHash } from '#runtime/crypto/node';
import { aepOf, type BuiltAep, type Decision, type PinnedIntake } from '#sql/proofs/rebuild-aep';
import { policyInputText, type PolicyEngine, type PolicyInput } from './decide.js';

/** The unsigned AEP of an admission, and the decision in it. */
export interface DerivedAep extends BuiltAep {
  requestHash: string;
  decision: Decision;
  input: PrintedInput;
}

/**
 * canonicalize → evaluate → AEP. A pure function of the intake row, its pinned policy set and the
 * id of the signing key: workers decide with it, and replay repeats the decision.
 *
 * @throws IntakeMismatchError when the stored request is not the accepted one
 * @throws UnknownRequestTypeError
 */
export function deriveAep(intake: PinnedIntake, policy: PolicyEngine, keyId: string): DerivedAep {
  const document = parseStrict(intake.request);
  // Canonicalized again: the engine could have stored another spelling, for a second admission.
  const requestHash = nativeTextHash(canonicalize(document));
  if (requestHash !== intake.requestHash.toString('hex')) {
    throw new IntakeMismatchError(
      'the hash of the stored request differs from the one at acceptance',
    );
  }
  const request = readRequest(intake, document);
  const policyInput = policyInputOf(intake, request);
  const input = printedInput(policyInput);
  const decision = {
    ...policy.decide(policyInput, input.text),
    inputHash: input.hash,
    engineVersion: policy.engineVersion,
    keyId,
  };
  // A replay can evaluate another policy set than the pinned one.
  const decided = { ...intake, policyDigest: Buffer.from(policy.digest, 'hex') };
  return { ...aepOf(decided, request, decision), requestHash, decision, input };
}

/** A policy input in its RFC 8785 form, and the SHA-256 of that form. */
export interface PrintedInput {
  text: string;
  hash: string;
}

const KEPT_INPUTS = 10_000;
const inputs = new Map<string, PrintedInput>();

/** Caches the hash, because equal inputs are common. */
function printedInput(input: PolicyInput): PrintedInput {
  const text = policyInputText(input);
  const known = inputs.get(text);
  if (known !== undefined) return known;
  const printed = { text, hash: nativeTextHash(text) };
  if (inputs.size >= KEPT_INPUTS) inputs.clear();
  inputs.set(text, printed);
  return printed;
}

/** The request of an admission, validated. */
export function readRequest(
  { lane, tenantId }: Pick<PinnedIntake, 'lane' | 'tenantId'>,
  document: JsonValue,
): ExecuteRequest | AgentEnvelope {
  const schema = { 1: executeRequestSchema, 2: agentEnvelopeSchema }[lane as number];
  if (schema === undefined) {
    throw new UnknownRequestTypeError(`this version does not know request type ${String(lane)}`);
  }
  const request = schema.parse(document);
  if (request.tenant_id === tenantId) return request;
  throw new IntakeMismatchError('the request names another tenant than its acceptance');
}

export function policyInputOf(
  { tenantId, environment, fixtureHash, bound = false }: PinnedIntake & { bound?: boolean },
  request: ExecuteRequest | AgentEnvelope,
): PolicyInput {
  const agent = 'kind' in request ? request.agent : null;
  const ref = 'kind' in request ? undefined : request.proof_chain_fixture_ref;
  return {
    schema_version: 'svc.policy.input/1.1',
    tenant: { tenant_id: tenantId, environment },
    environment,
    lane: agent === null ? 'execute' : 'agent',
    action: 'action' in request ? request.action : null,
    agent: agent && { id: agent.id, framework: agent.framework ?? null, bound },
    tool: 'tool' in request ? (request.tool ?? null) : null,
    fixture: ref === undefined ? null : { ref, hash: fixtureHash?.toString('hex') ?? null },
    facts: 'facts' in request ? (request.facts ?? {}) : {},
    approval: null,
    budgets: {},
  };
}

/** The stored admission differs from the accepted one, so it must not be committed. */
export class IntakeMismatchError extends Error {
  override readonly name = 'IntakeMismatchError';
}

/** This version does not know the request type of the admission; a newer version may. */
export class UnknownRequestTypeError extends Error {
  override readonly name = 'UnknownLaneError';
}
