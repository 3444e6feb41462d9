import * as z from 'zod';
import { SCHEMA } from './ids.js';
import { textSchema, timeSchema } from './primitives.js';
import { receiptEvidenceSchema } from './proof-export.js';

/** Answer of `GET /v1/approvals/{proof_id}`: the pending proof that the approver decides about. */
export const approvalRequestSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.approvalRequest),
  /** Discloses every value that the AEP of the pending proof commits to. */
  evidence: receiptEvidenceSchema,
  /** The service rejects an approval that arrives at this time or later. */
  expires_at: timeSchema,
  /** Explanations of the policies that require the approval, by policy id. The engine states them, not the AEP. */
  sentences: z.record(textSchema, z.string()),
});
export type ApprovalRequest = z.infer<typeof approvalRequestSchema>;
