import * as z from 'zod';
import { SCHEMA } from './ids.js';
import {
  actionSchema,
  hashSchema,
  proofIdSchema,
  tenantIdSchema,
  textSchema,
} from './primitives.js';

export const intentIdSchema = textSchema;
export const fixtureRefSchema = textSchema;
/** Opaque; printable ASCII because a header returns it. */
export const idempotencyKeySchema = z
  .string()
  .regex(/^[\x20-\x7e]{1,255}$/, 'expected 1 to 255 printable ASCII characters');

/** Body of `POST /v1/intents/execute`. */
export const executeRequestSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.executeRequest),
  intent_id: intentIdSchema.meta({ description: 'Your name for the intent.' }),
  tenant_id: tenantIdSchema.meta({ description: 'Your tenant, as in the header.' }),
  action: actionSchema.meta({ description: 'The action to admit.' }),
  idempotency_key: idempotencyKeySchema
    .meta({ description: 'Opaque; returned in the header of that name.' })
    .exactOptional(),
  proof_chain_fixture_ref: fixtureRefSchema
    .meta({
      description: 'A fixture for the decision; bound as given, even if unknown to the service.',
    })
    .exactOptional(),
});
export type ExecuteRequest = z.infer<typeof executeRequestSchema>;

/** The members that receipts of both request types share. */
export const receiptMembers = {
  status: z.enum(['ADMITTED', 'DENIED']),
  request_hash: hashSchema.meta({ description: 'SHA-256 of the body’s RFC 8785 form.' }),
  registry_proof_id: proofIdSchema.meta({ description: 'The proof id.' }),
  response_hash: hashSchema.meta({
    description: 'SHA-256 of the RFC 8785 form of this receipt without this field.',
  }),
  vee_recorded: z.literal(true),
};

/** The response: these seven fields and no others. */
export const executeReceiptSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.executeReceipt),
  receipt_id: z.string().regex(/^svc-runtime-execute-[0-9a-f]{16}$/),
  ...receiptMembers,
});
export type ExecuteReceipt = z.infer<typeof executeReceiptSchema>;

/** The body of a 202: the admission is durable and undecided. */
export const admissionStatusSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.admissionStatus),
  proof_id: proofIdSchema,
  state: z.literal('pending'),
});
