import { z } from 'zod';
import { aepSchema } from './aep.js';
import { SCHEMA } from './ids.js';
import { agentReceiptSchema } from './agent.js';
import { executeReceiptSchema } from './execute.js';
import { proofEntrySchema } from './log-entry.js';
import { effectSchema, environmentSchema, logIndexSchema, proofIdSchema } from './primitives.js';
import { proofRecordSchema } from './proof-record.js';

/**
 * A proof as its tenant reads it: the proof record with everything that it belongs to. `aep` and
 * `proof_record` are null once the payload has been erased.
 */
export const proofViewSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.proofView),
  proof_id: proofIdSchema,
  effect: effectSchema,
  environment: environmentSchema,
  leaf_index: logIndexSchema,
  log_entry: proofEntrySchema,
  receipt: z.union([executeReceiptSchema, agentReceiptSchema]),
  aep: aepSchema.nullable(),
  proof_record: proofRecordSchema.nullable(),
});
export type ProofView = z.infer<typeof proofViewSchema>;
