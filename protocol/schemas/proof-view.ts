import * as z from 'zod';
import { STATUSES } from '../status.js';
import { aepSchema, proofRecordSchema } from './aep.js';
import { agentReceiptSchema, executeReceiptSchema } from './admission.js';
import { batchIdSchema } from './batch.js';
import { SCHEMA } from './ids.js';
import { proofEntrySchema } from './log-entry.js';
import {
  actionSchema,
  artifactKindSchema,
  assertionCheck,
  effectSchema,
  environmentSchema,
  hashSchema,
  logIndexSchema,
  pageOf,
  proofIdSchema,
  runSchema,
  textSchema,
  timeSchema,
} from './primitives.js';
import { verdictStatementSchema } from './verdict.js';

const found = <Name extends string>(name: Name) =>
  z.strictObject({ event: z.literal(name), at: timeSchema, log_size: logIndexSchema });

const acceptedEventSchema = z.strictObject({ event: z.literal('accepted'), at: timeSchema });
/** The commit point of the admission. The event `appended` has no time, because the log only orders its entries. */
const appendedEventSchema = z.strictObject({
  event: z.literal('appended'),
  leaf_index: logIndexSchema,
});
const verifiedEventSchema = found('verified');
/** A check failed: nothing is asserted until a later verification passes. */
const failedEventSchema = found('failed').extend({ checks: z.array(z.string()) });
/** The payload was erased on purpose: nothing is asserted any more, although no check failed. */
const erasedEventSchema = found('erased');
const expiredEventSchema = found('expired').extend({ artifacts: z.array(artifactKindSchema) });
const revokedEventSchema = z.strictObject({
  event: z.literal('revoked'),
  at: timeSchema,
  artifact: artifactKindSchema,
  leaf_index: logIndexSchema,
  reason_hash: hashSchema,
});

export const proofEventSchema = z.discriminatedUnion('event', [
  acceptedEventSchema,
  appendedEventSchema,
  verifiedEventSchema,
  failedEventSchema,
  erasedEventSchema,
  expiredEventSchema,
  revokedEventSchema,
]);
export type ProofEvent = z.infer<typeof proofEventSchema>;

/** A public event: it depends only on the log entries and the snapshot. */
export const publicEventSchema = z.discriminatedUnion('event', [
  acceptedEventSchema,
  appendedEventSchema,
  verifiedEventSchema,
  found('failed'),
  erasedEventSchema,
  found('lost'),
  z.strictObject({
    event: z.literal('expired'),
    at: timeSchema,
    artifacts: z.array(artifactKindSchema).min(1),
  }),
  revokedEventSchema,
]);
export type PublicEvent = z.infer<typeof publicEventSchema>;

/**
 * A proof as its tenant reads it: the proof record and all related documents, the current verdict
 * and its history. `receipt`, `aep` and `proof_record` are null once the payload is erased.
 */
export const proofViewSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.proofView),
  proof_id: proofIdSchema,
  effect: effectSchema,
  environment: environmentSchema,
  leaf_index: logIndexSchema,
  log_entry: proofEntrySchema,
  receipt: z.union([executeReceiptSchema, agentReceiptSchema]).nullable(),
  aep: aepSchema.nullable(),
  proof_record: proofRecordSchema.nullable(),
  verdict: verdictStatementSchema,
  history: z.array(proofEventSchema),
  /** The path of the list of proofs that name this proof as their parent, such as its outcomes. */
  children: z.string(),
});
export type ProofView = z.infer<typeof proofViewSchema>;

export const listedProofSchema = z
  .strictObject({
    proof_id: proofIdSchema,
    leaf_index: logIndexSchema,
    environment: environmentSchema,
    lane: z.enum(['execute', 'agent']),
    effect: effectSchema,
    /** The action; null for an outcome or a close, and after an erasure. */
    action: actionSchema.nullable(),
    /** The intent id; null for agent requests, and after an erasure. */
    intent_id: textSchema.nullable(),
    /** Members of an agent request; null for execute requests, for absent members, and after an erasure. */
    agent: textSchema.nullable(),
    tool: textSchema.nullable(),
    run: runSchema.nullable(),
    parent_proof_id: proofIdSchema.nullable(),
    /** Whether the API key was restricted to the agent; null for execute requests, and after an erasure. */
    bound: z.boolean().nullable(),
    /** The batch in which the admission was first accepted; null for an admission outside of batches. */
    batch_id: batchIdSchema.nullable(),
    accepted_at: timeSchema,
    verification_status: z.enum(STATUSES),
    can_assert_validity: z.boolean(),
  })
  .check(assertionCheck);
export type ListedProof = z.infer<typeof listedProofSchema>;

/** Answer of `GET /v1/proofs`, newest first in log order. A page before the last may be short or empty. */
export const proofListSchema = pageOf(SCHEMA.proofList, {
  proofs: z.array(listedProofSchema).max(200),
});
export type ProofList = z.infer<typeof proofListSchema>;
