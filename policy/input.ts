import { orderedText } from '#protocol/canonical-json';
import type { JsonValue } from '#protocol/json';

/**
 * What a policy decides about, `svc.policy.input/1.0`. It holds what policies can speak of and none
 * of the request's identifiers or times, so equal inputs are common and one decision serves them.
 */
export interface PolicyInput {
  schema_version: 'svc.policy.input/1.0';
  tenant: { tenant_id: string; environment: string };
  environment: string;
  lane: 'execute' | 'agent';
  /** Null for an outcome, which no policy decides. */
  action: string | null;
  agent: { id: string; framework: string | null } | null;
  tool: string | null;
  fixture: { ref: string; hash: string | null } | null;
}

export function policyInputJson(input: PolicyInput): JsonValue {
  return input as unknown as JsonValue;
}

/** The RFC 8785 form of an input. It has one shape, so its members are put in their order here. */
export function policyInputText(input: PolicyInput): string {
  const { action, agent, environment, fixture, lane, tenant, tool } = input;
  const ordered = {
    action,
    agent: agent === null ? null : { framework: agent.framework, id: agent.id },
    environment,
    fixture: fixture === null ? null : { hash: fixture.hash, ref: fixture.ref },
    lane,
    schema_version: input.schema_version,
    tenant: { environment: tenant.environment, tenant_id: tenant.tenant_id },
    tool,
  };
  return orderedText(ordered);
}
