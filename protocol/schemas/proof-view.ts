import * as z from 'zod';
import { aepSchema } from './aep.js';
import { SCHEMA } from './ids.js';
import { agentReceiptSchema } from './agent.js';
import { executeReceiptSchema } from './execute.js';
import { proofEntrySchema } from './log-entry.js';
import {
  artifactKindSchema,
  effectSchema,
  environmentSchema,
  hashSchema,
  logIndexSchema,
  proofIdSchema,
  timeSchema,
} from './primitives.js';
import { proofRecordSchema } from './proof-record.js';
import { verdictStatementSchema } from './verdict.js';

/** Members of a verification event. */
const foundMembers = { at: timeSchema, log_size: logIndexSchema };

const acceptedEventSchema = z.strictObject({ event: z.literal('accepted'), at: timeSchema });
/** The commit point. The log orders its entries and has no clock. */
const appendedEventSchema = z.strictObject({
  event: z.literal('appended'),
  leaf_index: logIndexSchema,
});
const verifiedEventSchema = z.strictObject({ event: z.literal('verified'), ...foundMembers });
/** A check failed; no statement until a later verification passes. */
const failedEventSchema = z.strictObject({
  event: z.literal('failed'),
  ...foundMembers,
  checks: z.array(z.string()),
});
/** The payload was erased on purpose. No statement any more, although no check failed. */
const erasedEventSchema = z.strictObject({ event: z.literal('erased'), ...foundMembers });
const expiredEventSchema = z.strictObject({
  event: z.literal('expired'),
  ...foundMembers,
  artifacts: z.array(artifactKindSchema),
});
const revokedEventSchema = z.strictObject({
  event: z.literal('revoked'),
  at: timeSchema,
  artifact: artifactKindSchema,
  /** Leaf index of the revocation entry. */
  leaf_index: logIndexSchema,
  reason_hash: hashSchema,
});

/** One event in the history of a proof. */
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

/**
 * The published form. When verification is all that happened to a proof, the snapshot has no
 * `log_size`.
 */
export const publicEventSchema = z.discriminatedUnion('event', [
  acceptedEventSchema,
  appendedEventSchema,
  verifiedEventSchema.extend({ log_size: logIndexSchema.exactOptional() }),
  failedEventSchema,
  erasedEventSchema,
  expiredEventSchema,
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
});
export type ProofView = z.infer<typeof proofViewSchema>;
