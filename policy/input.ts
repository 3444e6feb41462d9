import { orderedText } from '#protocol/canonical-json';
import type { JsonValue } from '#protocol/json';

/**
 * The input of a policy decision, `svc.policy.input/1.0`. It contains only what policies can refer
 * to, without the request's identifiers and times, so equal inputs are common and share a decision.
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

/** The RFC 8785 form of an input, whose members are fixed and listed in canonical order. */
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
