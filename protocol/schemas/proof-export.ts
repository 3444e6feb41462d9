import * as z from 'zod';
import { aepSchema } from './aep.js';
import { SCHEMA } from './ids.js';
import { inclusionProofSchema } from './inclusion.js';
import { proofEntrySchema } from './log-entry.js';
import { hashSchema, keyIdSchema, proofIdSchema, publicKeySchema } from './primitives.js';
import { dsseEnvelopeSchema, proofRecordSchema } from './proof-record.js';
import { verdictStatementSchema } from './verdict.js';

/**
 * Everything that is needed to check a proof without the service, except trust: whoever checks it
 * brings the keys. The keys in here say which ones to look for, and never what to believe; nor is
 * the verdict signed, so that only the registry can say whether it made it.
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
  /** What the registry said of the proof when it was exported. */
  verdict: verdictStatementSchema,
  /** The log's C2SP verifier key; null where the engine was not told. */
  log_vkey: z.string().min(1).nullable(),
});
export type ProofExport = z.infer<typeof proofExportSchema>;
