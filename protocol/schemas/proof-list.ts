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

/** One proof of the tenant, as lists show it. */
export const listedProofSchema = z
  .strictObject({
    proof_id: proofIdSchema,
    leaf_index: logIndexSchema,
    environment: environmentSchema,
    lane: z.enum(['execute', 'agent']),
    effect: effectSchema,
    /** Null for an outcome. */
    action: actionSchema.nullable(),
    /** Null for agent requests. */
    intent_id: textSchema.nullable(),
    accepted_at: timeSchema,
    /** Status of the proof itself at the time of the request. */
    verification_status: z.enum(STATUSES),
    can_assert_validity: z.boolean(),
  })
  .refine((proof) => proof.can_assert_validity === canAssertValidity(proof.verification_status), {
    path: ['can_assert_validity'],
    message: 'does not follow from the status',
  });
export type ListedProof = z.infer<typeof listedProofSchema>;

/** Answer of `GET /v1/proofs`, newest first in log order. */
export const proofListSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.proofList),
  proofs: z.array(listedProofSchema).max(200),
  /** Cursor of the next page; null after the last. A page before the last may be short or empty. */
  next_cursor: z.string().nullable(),
});
export type ProofList = z.infer<typeof proofListSchema>;
