import { z } from 'zod';
import { aepSchema } from '#protocol/schemas/aep';
import { executeReceiptSchema } from '#protocol/schemas/execute';
import { proofEntrySchema } from '#protocol/schemas/log-entry';
import {
  effectSchema,
  environmentSchema,
  logIndexSchema,
  proofIdSchema,
} from '#protocol/schemas/primitives';
import { proofRecordSchema } from '#protocol/schemas/proof-record';

export const PROOF_VIEW = 'svc.registry.proof_view/1.0';

/**
 * A proof as its tenant reads it: the proof record with everything that it belongs to. `aep` and
 * `proof_record` are null once the payload has been erased.
 */
export const proofViewSchema = z.strictObject({
  schema_version: z.literal(PROOF_VIEW),
  proof_id: proofIdSchema,
  effect: effectSchema,
  environment: environmentSchema,
  leaf_index: logIndexSchema,
  log_entry: proofEntrySchema,
  receipt: executeReceiptSchema,
  aep: aepSchema.nullable(),
  proof_record: proofRecordSchema.nullable(),
});
export type ProofView = z.infer<typeof proofViewSchema>;
