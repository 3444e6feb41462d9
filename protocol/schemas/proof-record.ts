import * as z from 'zod';
import { SCHEMA } from './ids.js';
import {
  base64Schema,
  hashSchema,
  keyIdSchema,
  proofIdSchema,
  signatureSchema,
} from './primitives.js';

export const AEP_PAYLOAD_TYPE = 'application/vnd.svc.aep+json';

/** A DSSE envelope around an AEP: one signature, canonical base64. */
export const dsseEnvelopeSchema = z.strictObject({
  payloadType: z.literal(AEP_PAYLOAD_TYPE),
  payload: base64Schema,
  signatures: z.tuple([z.strictObject({ keyid: keyIdSchema, sig: signatureSchema })]),
});
export type DsseEnvelope = z.infer<typeof dsseEnvelopeSchema>;

/** The log commits to this beside the AEP: its envelope, request and response. */
export const proofRecordSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.proofRecord),
  proof_id: proofIdSchema,
  aep_hash: hashSchema,
  envelope: dsseEnvelopeSchema,
  request_hash: hashSchema,
  response_hash: hashSchema,
});
export type ProofRecord = z.infer<typeof proofRecordSchema>;
