import * as z from 'zod';
import { SCHEMA } from './ids.js';
import { proofIdSchema } from './primitives.js';

/** Accepted and durable, not yet decided: the body of a 202. */
export const admissionStatusSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.admissionStatus),
  proof_id: proofIdSchema,
  state: z.literal('pending'),
});
export type AdmissionStatus = z.infer<typeof admissionStatusSchema>;
