import { z } from 'zod';
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
/** Opaque; printable ASCII because it travels back in a header. */
export const idempotencyKeySchema = z
  .string()
  .regex(/^[\x20-\x7e]{1,255}$/, 'expected 1 to 255 printable ASCII characters');

/** Body of `POST /v1/intents/execute` (spec 2.4). */
export const executeRequestSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.executeRequest),
  intent_id: intentIdSchema,
  tenant_id: tenantIdSchema,
  action: actionSchema,
  idempotency_key: idempotencyKeySchema.exactOptional(),
  proof_chain_fixture_ref: fixtureRefSchema.exactOptional(),
});
export type ExecuteRequest = z.infer<typeof executeRequestSchema>;

/** Answer to it: these seven fields and no other (spec 2.5). */
export const executeReceiptSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.executeReceipt),
  receipt_id: z.string().regex(/^svc-runtime-execute-[0-9a-f]{16}$/),
  status: z.enum(['ADMITTED', 'DENIED']),
  request_hash: hashSchema,
  registry_proof_id: proofIdSchema,
  response_hash: hashSchema,
  vee_recorded: z.literal(true),
});
export type ExecuteReceipt = z.infer<typeof executeReceiptSchema>;
