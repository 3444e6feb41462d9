import { z } from 'zod';
import { SCHEMA } from '#protocol/schemas/ids';
import { inclusionProofSchema } from '#protocol/schemas/inclusion';
import { proofEntrySchema } from '#protocol/schemas/log-entry';
import { logIndexSchema, merkleHashSchema, proofIdSchema } from '#protocol/schemas/primitives';

const leaf = {
  schema_version: z.literal(SCHEMA.inclusion),
  proof_id: proofIdSchema,
  leaf_index: logIndexSchema,
  /** RFC 6962: SHA-256 of 0x00 and the canonical bytes of `entry`, base64 as in a checkpoint. */
  leaf_hash: merkleHashSchema,
  entry: proofEntrySchema,
};

/** Answer of GET /v1/proofs/{proof_id}/inclusion. */
export const inclusionAnswerSchema = z.discriminatedUnion('state', [
  z.strictObject({
    ...leaf,
    state: z.literal('included'),
    /** What the path leads to, and the checkpoint says. */
    root: merkleHashSchema,
    inclusion: inclusionProofSchema,
  }),
  /** In the log for good, but no signed checkpoint covers it yet: ask again in a second. */
  z.strictObject({
    ...leaf,
    state: z.literal('pending_checkpoint'),
    root: z.null(),
    inclusion: z.null(),
  }),
]);
export type InclusionAnswer = z.infer<typeof inclusionAnswerSchema>;
