import * as z from 'zod';
import { SCHEMA } from './ids.js';
import { proofEntrySchema } from './log-entry.js';
import {
  effectSchema,
  logIndexSchema,
  proofIdSchema,
  runIdSchema,
  textSchema,
} from './primitives.js';
import { disclosureSchema, receiptEvidenceSchema } from './proof-export.js';

/** A proof that discloses chosen values: the members of receipt evidence. */
export const disclosedExportSchema = receiptEvidenceSchema.extend({
  schema_version: z.literal(SCHEMA.disclosure),
});

/** A proof without its payload: only the commitments in the log. */
export const erasedExportSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.disclosure),
  proof_record: z.null(),
  entry: proofEntrySchema,
  key: z.null(),
  approval: z.null(),
  disclosures: z.array(disclosureSchema).max(0),
  tlog_proof: z.string(),
});

/** Answer of `GET /v1/runs/{run}/package`: every proof of a closed run. */
export const runPackageSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.runPackage),
  close: disclosedExportSchema,
  /** In log order. */
  members: z.array(z.union([disclosedExportSchema, erasedExportSchema])),
});
export type RunPackage = z.infer<typeof runPackageSchema>;

/** Answer of `GET /v1/runs/{run}`. */
export const runStateSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.runState),
  run: runIdSchema,
  agent: textSchema,
  /** `closed` once the close is in the log, `closing` while it is pending. */
  state: z.enum(['open', 'closing', 'closed']),
  /** The requests of the run except the close: in log order, then the pending requests. */
  members: z.array(
    z.strictObject({
      seq: logIndexSchema,
      proof_id: proofIdSchema,
      /** The leaf of the request; like `effect` null while pending. */
      leaf_index: logIndexSchema.nullable(),
      effect: effectSchema.nullable(),
    }),
  ),
  /** The close; null while the run is open. */
  close_proof_id: proofIdSchema.nullable(),
  /** The numbers that no request has, among those below the highest number of a request. */
  missing: z.array(logIndexSchema),
});
export type RunStateDocument = z.infer<typeof runStateSchema>;
