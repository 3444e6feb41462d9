import * as z from 'zod';
import { SCHEMA } from './ids.js';
import { proofEntrySchema } from './log-entry.js';
import { logIndexSchema, merkleHashSchema, proofIdSchema } from './primitives.js';

/** The position of a leaf under a signed checkpoint. */
export const inclusionProofSchema = z.strictObject({
  leaf_index: logIndexSchema,
  tree_size: logIndexSchema,
  /** RFC 6962 §2.1.1, from the leaf's sibling up, base64 as in a tlog-proof. */
  path: z.array(merkleHashSchema).max(64),
  /** The signed note of the checkpoint at `tree_size`. */
  checkpoint: z.string(),
});
export type InclusionProof = z.infer<typeof inclusionProofSchema>;

const leafMembers = {
  schema_version: z.literal(SCHEMA.inclusion),
  proof_id: proofIdSchema,
  leaf_index: logIndexSchema,
  /** SHA-256 of 0x00 and the canonical bytes of `entry` (RFC 6962 §2.1), base64. */
  leaf_hash: merkleHashSchema,
  entry: proofEntrySchema,
};

/** Answer of `GET /v1/proofs/{proof_id}/inclusion`. */
export const inclusionResponseSchema = z.discriminatedUnion('state', [
  z.strictObject({
    ...leafMembers,
    state: z.literal('included'),
    /** The root of the path and of the checkpoint, base64. */
    root: merkleHashSchema,
    inclusion: inclusionProofSchema,
  }),
  /** In the log for good, and not yet under a signed checkpoint. */
  z.strictObject({
    ...leafMembers,
    state: z.literal('pending_checkpoint'),
    root: z.null(),
    inclusion: z.null(),
  }),
]);
export type InclusionResponse = z.infer<typeof inclusionResponseSchema>;
