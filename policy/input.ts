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
  action: string;
  agent: { id: string; framework: string | null } | null;
  tool: string | null;
  fixture: { ref: string; hash: string | null } | null;
}

/** What an outcome is to policy: the recording of one, whatever the action was. */
export const OUTCOME_ACTION = 'RECORD_OUTCOME';

export function policyInputJson(input: PolicyInput): JsonValue {
  return input as unknown as JsonValue;
}
