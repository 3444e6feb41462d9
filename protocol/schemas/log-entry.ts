import * as z from 'zod';
import { SCHEMA } from './ids.js';
import {
  artifactKindSchema,
  hashSchema,
  keyIdSchema,
  logIndexSchema,
  proofIdSchema,
  publicKeySchema,
  timeSchema,
} from './primitives.js';

export const proofEntrySchema = z.strictObject({
  schema_version: z.literal(SCHEMA.logEntry),
  type: z.literal('proof'),
  proof_id: proofIdSchema,
  aep_hash: hashSchema,
  proof_record_hash: hashSchema,
  time: timeSchema,
});
export type ProofEntry = z.infer<typeof proofEntrySchema>;

export const statusEntrySchema = z.strictObject({
  schema_version: z.literal(SCHEMA.logEntry),
  type: z.literal('status'),
  proof_id: proofIdSchema,
  artifact_kind: artifactKindSchema,
  status: z.literal('REVOKED'),
  reason_hash: hashSchema,
  time: timeSchema,
});
export type StatusEntry = z.infer<typeof statusEntrySchema>;

export const keyEntrySchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.logEntry),
    type: z.literal('key'),
    use: z.literal('aep'),
    key_id: keyIdSchema,
    public_key: publicKeySchema,
    change: z.enum(['activate', 'retire', 'compromise']),
    from_index: logIndexSchema.exactOptional(),
    time: timeSchema,
  })
  // Without `from_index` it would be undefined which signatures a compromise voids.
  .refine((entry) => (entry.from_index !== undefined) === (entry.change === 'compromise'), {
    path: ['from_index'],
    message: 'required for a compromise, absent otherwise',
  });
export type KeyEntry = z.infer<typeof keyEntrySchema>;

/** A leaf of the log: public, commitments only. */
export const logEntrySchema = z.discriminatedUnion('type', [
  proofEntrySchema,
  statusEntrySchema,
  keyEntrySchema,
]);
export type LogEntry = z.infer<typeof logEntrySchema>;
