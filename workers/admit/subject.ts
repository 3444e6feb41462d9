import type { JsonValue } from '#protocol/json';
import type { AepSubject } from '#protocol/schemas/aep';
import { executeRequestSchema } from '#protocol/schemas/execute';
import type { PendingIntake } from '#sql/append';
import type { PolicyInput } from '../policy/input.js';
import { IntakeMismatchError, UnknownLaneError } from './errors.js';

/** What an admission is about: as the AEP says it, and as policy sees it. */
export interface Subject {
  subject: AepSubject;
  fixtureRef: string | null;
  policyInput: PolicyInput;
}

/** Reads the request of an intake by the schema of its lane. */
export function readSubject(intake: PendingIntake, request: JsonValue): Subject {
  if (intake.lane !== 1) {
    throw new UnknownLaneError(`this worker does not know lane ${intake.lane}`);
  }
  const execute = executeRequestSchema.parse(request);
  if (execute.tenant_id !== intake.tenantId) {
    throw new IntakeMismatchError(
      'the request names another tenant than the one it was accepted for',
    );
  }
  const fixtureRef = execute.proof_chain_fixture_ref ?? null;
  const fixtureHash = intake.fixtureHash?.toString('hex') ?? null;
  return {
    subject: { kind: 'execute', intent_id: execute.intent_id, action: execute.action },
    fixtureRef,
    policyInput: {
      schema_version: 'svc.policy.input/1.0',
      tenant: { tenant_id: intake.tenantId, environment: intake.environment },
      environment: intake.environment,
      lane: 'execute',
      action: execute.action,
      agent: null,
      tool: null,
      fixture: fixtureRef === null ? null : { ref: fixtureRef, hash: fixtureHash },
    },
  };
}
