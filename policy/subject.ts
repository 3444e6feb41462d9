import type { JsonValue } from '#protocol/json';
import type { AepSubject } from '#protocol/schemas/aep';
import {
  agentEnvelopeSchema,
  type AgentEnvelope,
  executeRequestSchema,
  type ExecuteRequest,
} from '#protocol/schemas/admission';
import type { PinnedIntake } from '#sql/admissions/intake';
import { IntakeMismatchError, UnknownRequestTypeError } from './errors.js';
import type { PolicyInput } from './decide.js';

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
