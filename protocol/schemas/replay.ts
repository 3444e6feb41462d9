import * as z from 'zod';
import { aepDecisionSchema } from './aep.js';
import { SCHEMA } from './ids.js';
import { hashSchema, proofIdSchema } from './primitives.js';

export const replayDifferenceSchema = z.strictObject({
  /** RFC 6901 pointer into the AEP; '' is the whole AEP. */
  pointer: z.string(),
  /**
   * Absent on the side without such a member; both absent for an API key without read access to the
   * proof.
   */
  recorded: z.unknown().exactOptional(),
  replayed: z.unknown().exactOptional(),
});
export type ReplayDifference = z.infer<typeof replayDifferenceSchema>;

/** The decision of another policy set for the same input. Proves nothing. */
export const counterfactualSchema = z.strictObject({
  policy_digest: hashSchema,
  decision: aepDecisionSchema,
  /** Sentences for display, by policy id. */
  sentences: z.record(z.string(), z.string()),
  /** Whether the decision or its reasons differ from the recorded ones. */
  differs: z.boolean(),
});
export type Counterfactual = z.infer<typeof counterfactualSchema>;

/** Answer of `POST /v1/proofs/replay`. */
export const replaySchema = z.strictObject({
  schema_version: z.literal(SCHEMA.replay),
  proof_id: proofIdSchema,
  /**
   * `match`: every member of the AEP is equal, under the engine that decided. Under another engine
   * the result is never `match`.
   */
  result: z.enum(['match', 'divergence', 'engine_version_differs']),
  differences: z.array(replayDifferenceSchema),
  engine: z.strictObject({ recorded_version: z.string(), running_version: z.string() }),
  /** The policy set of the recorded decision, as pinned at intake. */
  policy_digest: hashSchema,
  /** Hash of the re-derived policy input; null when the stored request is not the accepted one. */
  input_hash: hashSchema.nullable(),
  counterfactual: counterfactualSchema.nullable(),
});
export type Replay = z.infer<typeof replaySchema>;
