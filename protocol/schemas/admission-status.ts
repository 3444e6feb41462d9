import * as z from 'zod';
import { SCHEMA } from './ids.js';
import { proofIdSchema } from './primitives.js';

/** The body of a 202: the admission is durable and undecided. */
export const admissionStatusSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.admissionStatus),
  proof_id: proofIdSchema,
  state: z.literal('pending'),
});
export type AdmissionStatus = z.infer<typeof admissionStatusSchema>;
