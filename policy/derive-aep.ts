import { aepText, buildAep } from '#protocol/aep';
import { canonicalize, parseStrict, type JsonValue } from '#protocol/json';
import {
  agentEnvelopeSchema,
  type AgentEnvelope,
  executeRequestSchema,
  type ExecuteRequest,
} from '#protocol/schemas/admission';
import type { Aep, AepSubject } from '#protocol/schemas/aep';
import { formatTime } from '#protocol/time';
import { nativeTextHash } from '#runtime/crypto/node';
import type { PinnedIntake } from '#sql/admissions/intake';
import { policyInputText, type PolicyEngine, type PolicyInput } from './decide.js';

/** The unsigned AEP of an admission. */
export interface DerivedAep {
  aep: Aep;
  /** The AEP's canonical form, which is hashed and signed. */
  text: string;
  requestHash: string;
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
  const request = parseStrict(intake.request);
  const requestHash = nativeTextHash(canonicalize(request));
  if (requestHash !== intake.requestHash.toString('hex')) {
    throw new IntakeMismatchError(
      'the hash of the stored request differs from the one at acceptance',
    );
  }
  const { subject, fixtureRef, policyInput } = readSubject(intake, request);
  const input = printedInput(policyInput);
  const decision = policy.decide(policyInput, input.text);
  const aep = buildAep({
    proof_id: intake.proofId,
    environment: intake.environment,
    tenant_id: intake.tenantId,
    subject,
    request_hash: requestHash,
    decision,
    policy: {
      digest: policy.digest,
      input_hash: input.hash,
      engine_version: policy.engineVersion,
    },
    evidence: {
      fixture_ref: fixtureRef,
      fixture_hash: intake.fixtureHash?.toString('hex') ?? null,
    },
    ...timesOf(intake),
    salt: intake.salt.toString('hex'),
    key_id: keyId,
  });
  return { aep, text: aepText(aep), requestHash, input };
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

/** Times of acceptance and expiry; the latter follow from the settings pinned at intake. */
function timesOf({ validity, acceptedAt }: PinnedIntake) {
  const end = (seconds: number | null): string | null =>
    seconds === null ? null : formatTime(acceptedAt + seconds * 1000);
  return {
    accepted_at: formatTime(acceptedAt),
    valid_until: {
      proof: end(validity.proof),
      certificate: end(validity.certificate),
      passport: end(validity.passport),
      trust: end(validity.trust),
    },
  };
}

/** The subject of an admission, for the AEP and for policies. */
export interface Subject {
  subject: AepSubject;
  fixtureRef: string | null;
  policyInput: PolicyInput;
}

export function readSubject(intake: PinnedIntake, request: JsonValue): Subject {
  switch (intake.lane) {
    case 1:
      return readExecute(intake, executeRequestSchema.parse(request));
    case 2:
      return readEnvelope(intake, agentEnvelopeSchema.parse(request));
    default:
      throw new UnknownRequestTypeError(
        `this version does not know request type ${String(intake.lane)}`,
      );
  }
}

function readExecute(intake: PinnedIntake, execute: ExecuteRequest): Subject {
  requireOwnTenant(intake, execute.tenant_id);
  const fixtureRef = execute.proof_chain_fixture_ref ?? null;
  const fixtureHash = intake.fixtureHash?.toString('hex') ?? null;
  return {
    subject: { kind: 'execute', intent_id: execute.intent_id, action: execute.action },
    fixtureRef,
    policyInput: {
      ...commonInput(intake),
      lane: 'execute',
      action: execute.action,
      agent: null,
      tool: null,
      fixture: fixtureRef === null ? null : { ref: fixtureRef, hash: fixtureHash },
    },
  };
}

function readEnvelope(intake: PinnedIntake, envelope: AgentEnvelope): Subject {
  requireOwnTenant(intake, envelope.tenant_id);
  const { agent } = envelope;
  return {
    subject: subjectOf(envelope),
    fixtureRef: null,
    policyInput: {
      ...commonInput(intake),
      lane: 'agent',
      action: envelope.kind === 'outcome' ? null : envelope.action,
      agent: { id: agent.id, framework: agent.framework ?? null },
      tool: envelope.kind === 'outcome' ? null : (envelope.tool ?? null),
      fixture: null,
    },
  };
}

function subjectOf(envelope: AgentEnvelope): AepSubject {
  if (envelope.kind === 'outcome') {
    const { parent_proof_id, result, result_hash } = envelope;
    return {
      kind: 'outcome',
      parent_proof_id,
      result,
      ...(result_hash === undefined ? {} : { result_hash }),
    };
  }
  const { agent, action, tool, arguments_hash, parent_proof_id } = envelope;
  return {
    kind: 'admission',
    agent,
    action,
    ...(tool === undefined ? {} : { tool }),
    ...(arguments_hash === undefined ? {} : { arguments_hash }),
    ...(parent_proof_id === undefined ? {} : { parent_proof_id }),
  };
}

function commonInput({
  tenantId,
  environment,
}: PinnedIntake): Pick<PolicyInput, 'schema_version' | 'tenant' | 'environment'> {
  return {
    schema_version: 'svc.policy.input/1.0',
    tenant: { tenant_id: tenantId, environment },
    environment,
  };
}

function requireOwnTenant(intake: PinnedIntake, tenantId: string): void {
  if (tenantId === intake.tenantId) return;
  throw new IntakeMismatchError('the request names another tenant than its acceptance');
}

/** The stored admission differs from the accepted one, so it must not be committed. */
export class IntakeMismatchError extends Error {
  override readonly name = 'IntakeMismatchError';
}

/** This version does not know the request type of the admission; a newer version may. */
export class UnknownRequestTypeError extends Error {
  override readonly name = 'UnknownLaneError';
}
