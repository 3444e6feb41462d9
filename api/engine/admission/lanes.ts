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

/** What every body that asks for an admission says. */
export interface AdmissionBody {
  tenant_id: string;
  idempotency_key?: string;
}

/** Where the admission lanes differ; everything else is the same code. */
export interface AdmissionLane<Body extends AdmissionBody> {
  lane: Lane;
  schema: z.ZodType<Body>;
  /** Reads what is plain without the schema, which then decides of the rest. */
  readPlain: (value: JsonValue) => PlainRequest<Body> | null;
  /** The `schema_version` that is served there. */
  version: string;
  fixtureRef?: (body: Body) => string | undefined;
  /** The proof that the body follows from, which the registry must have. */
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
