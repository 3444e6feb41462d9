import type * as z from 'zod';
import type { JsonValue } from '#protocol/json';
import {
  plainAgentEnvelope,
  plainExecuteRequest,
  type PlainRequest,
} from '#protocol/plain-request';
import { agentEnvelopeSchema, type AgentEnvelope } from '#protocol/schemas/agent';
import { executeRequestSchema, type ExecuteRequest } from '#protocol/schemas/execute';
import { SCHEMA } from '#protocol/schemas/ids';
import type { Lane } from '#sql/admissions/accept';

/** Members common to all admission bodies. */
export interface AdmissionBody {
  tenant_id: string;
  idempotency_key?: string;
}

/** Differences between the request types (execute, agent). */
export interface AdmissionLane<Body extends AdmissionBody> {
  lane: Lane;
  schema: z.ZodType<Body>;
  /** Fast path for plain bodies; null: the schema decides. */
  readPlain: (value: JsonValue) => PlainRequest<Body> | null;
  /** The supported `schema_version`. */
  version: string;
  fixtureRef?: (body: Body) => string | undefined;
  /** The parent proof that the body names. */
  parentOf?: (body: Body) => NamedParent | null;
}

export interface NamedParent {
  kind: AgentEnvelope['kind'];
  proofId: string;
}

export const EXECUTE_LANE: AdmissionLane<ExecuteRequest> = {
  lane: 1,
  schema: executeRequestSchema,
  readPlain: plainExecuteRequest,
  version: SCHEMA.executeRequest,
  fixtureRef: (body) => body.proof_chain_fixture_ref,
};

export const AGENT_LANE: AdmissionLane<AgentEnvelope> = {
  lane: 2,
  schema: agentEnvelopeSchema,
  readPlain: plainAgentEnvelope,
  version: SCHEMA.agentEnvelope,
  parentOf: ({ kind, parent_proof_id: proofId }) =>
    proofId === undefined ? null : { kind, proofId },
};
