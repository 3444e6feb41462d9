import { z } from 'zod';
import { SCHEMA } from './ids.js';
import { logEntrySchema } from './log-entry.js';
import { logIndexSchema, merkleHashSchema, proofIdSchema } from './primitives.js';

/** The place of a leaf under a signed checkpoint. */
export const inclusionProofSchema = z.strictObject({
  leaf_index: logIndexSchema,
  tree_size: logIndexSchema,
  /** RFC 6962 §2.1.1, from the leaf's sibling up, base64 as in a tlog-proof. */
  path: z.array(merkleHashSchema).max(64),
  /** The signed note of the checkpoint at `tree_size`. */
  checkpoint: z.string(),
});
export type InclusionProof = z.infer<typeof inclusionProofSchema>;

/** Answer of `GET /v1/proofs/{proof_id}/inclusion`. */
export const inclusionResponseSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.inclusion),
  proof_id: proofIdSchema,
  /** The leaf itself; the leaf hash is SHA-256(0x00 || its canonical bytes). */
  entry: logEntrySchema,
  inclusion: inclusionProofSchema,
});
export type InclusionResponse = z.infer<typeof inclusionResponseSchema>;
