import { z } from 'zod';
import { SCHEMA } from './ids.js';
import { idempotencyKeySchema } from './execute.js';
import {
  actionSchema,
  hashSchema,
  proofIdSchema,
  tenantIdSchema,
  textSchema,
  timeSchema,
} from './primitives.js';

/** Who acts, and on what framework it runs. */
export const agentSchema = z.strictObject({
  id: textSchema,
  framework: textSchema.exactOptional(),
});

/** Keeps two admissions of the same thing apart: two envelopes that differ in nothing are one. */
export const nonceSchema = z
  .string()
  .regex(/^[A-Za-z0-9_-]{16,128}$/, 'expected 16 to 128 characters of A-Z a-z 0-9 _ -');

const envelopeMembers = {
  schema_version: z.literal(SCHEMA.agentEnvelope),
  tenant_id: tenantIdSchema,
  agent: agentSchema,
  /** When the agent asked, by its own clock: recorded, and never judged. */
  requested_at: timeSchema,
  nonce: nonceSchema,
  idempotency_key: idempotencyKeySchema.exactOptional(),
};

/** An agent asks whether it may use a tool. The arguments stay with the agent; their hash is here. */
export const agentAdmissionSchema = z.strictObject({
  ...envelopeMembers,
  kind: z.literal('admission'),
  action: actionSchema,
  tool: textSchema.exactOptional(),
  /** SHA-256 of the arguments' RFC 8785 form. */
  arguments_hash: hashSchema.exactOptional(),
  parent_proof_id: proofIdSchema.exactOptional(),
});

/** An agent says what became of an admitted action, so that a decision is not taken for a deed. */
export const agentOutcomeSchema = z.strictObject({
  ...envelopeMembers,
  kind: z.literal('outcome'),
  parent_proof_id: proofIdSchema,
  result: z.enum(['succeeded', 'failed']),
  /** SHA-256 of the result's RFC 8785 form. */
  result_hash: hashSchema.exactOptional(),
});

/** Body of `POST /v1/agent/admissions`. */
export const agentEnvelopeSchema = z.discriminatedUnion('kind', [
  agentAdmissionSchema,
  agentOutcomeSchema,
]);
export type AgentEnvelope = z.infer<typeof agentEnvelopeSchema>;

/** Answer to it: the seven fields of an execute receipt, under the lane's own names. */
export const agentReceiptSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.agentReceipt),
  receipt_id: z.string().regex(/^svc-agent-admission-[0-9a-f]{16}$/),
  status: z.enum(['ADMITTED', 'DENIED']),
  request_hash: hashSchema,
  registry_proof_id: proofIdSchema,
  response_hash: hashSchema,
  vee_recorded: z.literal(true),
});
export type AgentReceipt = z.infer<typeof agentReceiptSchema>;
