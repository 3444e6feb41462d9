import * as z from 'zod';
import { canAssertValidity, STATUSES } from '../status.js';
import { SCHEMA } from './ids.js';
import {
  actionSchema,
  effectSchema,
  environmentSchema,
  logIndexSchema,
  proofIdSchema,
  textSchema,
  timeSchema,
} from './primitives.js';

/** One of the tenant's proofs, as a list shows it. */
export const listedProofSchema = z
  .strictObject({
    proof_id: proofIdSchema,
    leaf_index: logIndexSchema,
    environment: environmentSchema,
    lane: z.enum(['execute', 'agent']),
    effect: effectSchema,
    /** Null for an outcome, which has none. */
    action: actionSchema.nullable(),
    /** Null on the agent lane, which has none. */
    intent_id: textSchema.nullable(),
    accepted_at: timeSchema,
    /** Of the proof itself, when the list was made. */
    verification_status: z.enum(STATUSES),
    can_assert_validity: z.boolean(),
  })
  .refine((said) => said.can_assert_validity === canAssertValidity(said.verification_status), {
    path: ['can_assert_validity'],
    message: 'does not follow from the status',
  });
export type ListedProof = z.infer<typeof listedProofSchema>;

/** Answer of `GET /v1/proofs`: the newest first, which is the order of the log read backwards. */
export const proofListSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.proofList),
  proofs: z.array(listedProofSchema).max(200),
  /** Where the list goes on; null at its end. A page may be short, or empty, and not the last. */
  next_cursor: z.string().nullable(),
});
export type ProofList = z.infer<typeof proofListSchema>;
