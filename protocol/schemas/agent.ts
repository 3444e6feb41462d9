import * as z from 'zod';
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
export const NONCE_PATTERN = /^[A-Za-z0-9_-]{16,128}$/;
export const nonceSchema = z
  .string()
  .regex(NONCE_PATTERN, 'expected 16 to 128 characters of A-Z a-z 0-9 _ -');

const envelopeMembers = {
  schema_version: z.literal(SCHEMA.agentEnvelope),
  tenant_id: tenantIdSchema.meta({ description: 'Your tenant, as in the header.' }),
  agent: agentSchema,
  requested_at: timeSchema.meta({
    description: 'When the agent asked, by its own clock: recorded, and never judged.',
  }),
  nonce: nonceSchema.meta({
    description: 'Keeps apart two envelopes that are the same in everything else.',
  }),
  idempotency_key: idempotencyKeySchema
    .meta({ description: 'Opaque; comes back in the header of that name.' })
    .exactOptional(),
};

/** An agent asks whether it may use a tool. The arguments stay with the agent; their hash is here. */
export const agentAdmissionSchema = z.strictObject({
  ...envelopeMembers,
  kind: z.literal('admission'),
  action: actionSchema,
  tool: textSchema.exactOptional(),
  arguments_hash: hashSchema
    .meta({ description: 'SHA-256 of the arguments’ RFC 8785 form; they stay with the agent.' })
    .exactOptional(),
  parent_proof_id: proofIdSchema
    .meta({ description: 'A proof of yours that this follows from.' })
    .exactOptional(),
});

/** An agent says what became of an admitted action, so that a decision is not taken for a deed. */
export const agentOutcomeSchema = z.strictObject({
  ...envelopeMembers,
  kind: z.literal('outcome'),
  parent_proof_id: proofIdSchema.meta({
    description: 'The proof of the admitted action that this is the outcome of.',
  }),
  result: z.enum(['succeeded', 'failed']),
  result_hash: hashSchema
    .meta({ description: 'SHA-256 of the result’s RFC 8785 form.' })
    .exactOptional(),
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
  request_hash: hashSchema.meta({ description: 'SHA-256 of the body’s RFC 8785 form.' }),
  registry_proof_id: proofIdSchema.meta({ description: 'Where the proof is: its id.' }),
  response_hash: hashSchema.meta({
    description: 'SHA-256 of the RFC 8785 form of this receipt without this field.',
  }),
  vee_recorded: z.literal(true),
});
export type AgentReceipt = z.infer<typeof agentReceiptSchema>;
