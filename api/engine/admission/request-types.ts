import type * as z from 'zod';
import { canonicalize } from '#protocol/canonical-json';
import type { JsonValue } from '#protocol/json';
import { agentEnvelopeSchema, type AgentEnvelope } from '#protocol/schemas/agent';
import { executeRequestSchema, type ExecuteRequest } from '#protocol/schemas/execute';
import { SCHEMA } from '#protocol/schemas/ids';
import { nativeTextHash } from '#runtime/crypto/node';
import type { Lane } from '#sql/admissions/accept';
import type { Caller } from '../http/authenticate.js';
import { parseDocument } from '../http/parse-body.js';
import { at, Problem } from '../http/problem.js';

/** Members common to all admission bodies. */
export interface AdmissionBody {
  tenant_id: string;
  idempotency_key?: string;
}

/** A request type: execute or agent. */
export interface RequestType<Body extends AdmissionBody = AdmissionBody> {
  lane: Lane;
  schema: z.ZodType<Body>;
  /** The supported `schema_version`. */
  version: string;
  referencesOf: (body: Body) => Pick<ParsedAdmission, 'fixtureRef' | 'parent'>;
}

export const EXECUTE: RequestType<ExecuteRequest> = {
  lane: 1,
  schema: executeRequestSchema,
  version: SCHEMA.executeRequest,
  referencesOf: (body) => ({ fixtureRef: body.proof_chain_fixture_ref ?? null, parent: null }),
};

export const AGENT: RequestType<AgentEnvelope> = {
  lane: 2,
  schema: agentEnvelopeSchema,
  version: SCHEMA.agentEnvelope,
  referencesOf: ({ kind, parent_proof_id: proofId }) => ({
    fixtureRef: null,
    parent: proofId === undefined ? null : { kind, proofId },
  }),
};

export interface NamedParent {
  kind: AgentEnvelope['kind'];
  proofId: string;
}

/** A body that its schema accepts. Its tenant and its parent are not checked yet. */
export interface ParsedAdmission {
  lane: Lane;
  body: AdmissionBody;
  /** SHA-256 of the canonical body, lower-case hex. */
  requestHash: string;
  fixtureRef: string | null;
  /** The parent to check in the registry before acceptance. */
  parent: NamedParent | null;
}

/** @throws Problem 400 */
export function parseAdmission<Body extends AdmissionBody>(
  { lane, referencesOf, schema, version }: RequestType<Body>,
  value: JsonValue,
): ParsedAdmission {
  const body = parseDocument(schema, value, version);
  const requestHash = nativeTextHash(canonicalize(value));
  return { lane, body, requestHash, ...referencesOf(body) };
}

/** 403: the body names another tenant than the API key. */
export function requireOwnTenant({ tenant_id }: AdmissionBody, { tenantId }: Caller): void {
  if (tenant_id !== tenantId) {
    throw new Problem(
      'tenant_body_mismatch',
      'tenant_id does not name the tenant of this API key. Send the id of your own tenant.',
      at('/tenant_id', 'must be the tenant of the API key'),
    );
  }
}
