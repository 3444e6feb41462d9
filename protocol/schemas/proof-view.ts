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

/** What the verification system found, at a time and of a log of so many leaves. */
const foundMembers = { at: timeSchema, log_size: logIndexSchema };

const acceptedEventSchema = z.strictObject({ event: z.literal('accepted'), at: timeSchema });
/** The commit point. The log orders; it has no clock of its own. */
const appendedEventSchema = z.strictObject({
  event: z.literal('appended'),
  leaf_index: logIndexSchema,
});
const verifiedEventSchema = z.strictObject({ event: z.literal('verified'), ...foundMembers });
/** Some check did not pass; nothing is asserted from here on, until it is verified again. */
const failedEventSchema = z.strictObject({
  event: z.literal('failed'),
  ...foundMembers,
  checks: z.array(z.string()),
});
/** The payload was erased on purpose. Nothing is asserted any more, and no check failed. */
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
  /** Of the log entry that says so. */
  leaf_index: logIndexSchema,
  reason_hash: hashSchema,
});

/** One thing that became of a proof. */
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
 * The same as the public is told it. Of a proof of which there is nothing to tell but that it was
 * verified, the snapshot has when, and not how large the log was.
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
 * A proof as its tenant reads it: the proof record with everything that it belongs to, what the
 * registry says of it now, and how that came about. `receipt`, `aep` and `proof_record` are null once
 * the payload has been erased.
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
