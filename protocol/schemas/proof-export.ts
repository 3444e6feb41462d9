import * as z from 'zod';
import { aepSchema } from './aep.js';
import { SCHEMA } from './ids.js';
import { inclusionProofSchema } from './inclusion.js';
import { proofEntrySchema } from './log-entry.js';
import { hashSchema, keyIdSchema, proofIdSchema, publicKeySchema } from './primitives.js';
import { dsseEnvelopeSchema, proofRecordSchema } from './proof-record.js';
import { verdictStatementSchema } from './verdict.js';

/**
 * Everything that offline verification needs except trusted keys, which the reader obtains
 * elsewhere. The keys in here only identify which ones to obtain. The verdict is unsigned, so only
 * the registry can confirm it.
 */
export const proofExportSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.proofExport),
  proof_id: proofIdSchema,
  aep: aepSchema,
  envelope: dsseEnvelopeSchema,
  proof_record: proofRecordSchema,
  entry: proofEntrySchema,
  inclusion: inclusionProofSchema,
  keys: z.tuple([z.strictObject({ key_id: keyIdSchema, public_key: publicKeySchema })]),
  request_hash: hashSchema,
  response_hash: hashSchema,
  /** The registry's statement at the time of the export. */
  verdict: verdictStatementSchema,
  /** The log's C2SP verifier key; null where the engine is not configured with it. */
  log_vkey: z.string().min(1).nullable(),
});
export type ProofExport = z.infer<typeof proofExportSchema>;
