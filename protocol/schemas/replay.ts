import * as z from 'zod';
import { aepDecisionSchema } from './aep.js';
import { SCHEMA } from './ids.js';
import { hashSchema, proofIdSchema } from './primitives.js';

export const replayDifferenceSchema = z.strictObject({
  /** RFC 6901, into the AEP; '' is all of it. */
  pointer: z.string(),
  /** Absent on the side that has no such member; both, for a key that may not read the proof. */
  recorded: z.unknown().exactOptional(),
  replayed: z.unknown().exactOptional(),
});
export type ReplayDifference = z.infer<typeof replayDifferenceSchema>;

/** What another policy set would have decided about the same input. It is no proof of anything. */
export const counterfactualSchema = z.strictObject({
  policy_digest: hashSchema,
  decision: aepDecisionSchema,
  /** What its policies say to people, by policy id. */
  sentences: z.record(z.string(), z.string()),
  /** Whether that is another decision than the recorded one, its reasons included. */
  differs: z.boolean(),
});
export type Counterfactual = z.infer<typeof counterfactualSchema>;

/** Answer of `POST /v1/proofs/replay`. */
export const replaySchema = z.strictObject({
  schema_version: z.literal(SCHEMA.replay),
  proof_id: proofIdSchema,
  /**
   * `match`: every member of the AEP came out the same, under the engine that decided. Under another
   * one nothing is called a match, whatever came out.
   */
  result: z.enum(['match', 'divergence', 'engine_version_differs']),
  differences: z.array(replayDifferenceSchema),
  engine: z.strictObject({ recorded_version: z.string(), running_version: z.string() }),
  /** The set that decided, by the intake. */
  policy_digest: hashSchema,
  /** Of the policy input as it was derived again; null when the stored request is not the accepted one. */
  input_hash: hashSchema.nullable(),
  counterfactual: counterfactualSchema.nullable(),
});
export type Replay = z.infer<typeof replaySchema>;
