import * as z from 'zod';
import { aepSchema } from './aep.js';
import { SCHEMA } from './ids.js';
import { hashSchema, proofIdSchema } from './primitives.js';
import { proofExportSchema } from './proof-export.js';
import { dsseEnvelopeSchema } from './proof-record.js';

/** A proof by its id, or by its AEP and envelope. */
export const verifyRequestSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.verifyRequest),
    proof_id: proofIdSchema.exactOptional(),
    aep: aepSchema.exactOptional(),
    envelope: dsseEnvelopeSchema.exactOptional(),
  })
  .refine(
    ({ proof_id, aep, envelope }) =>
      proof_id === undefined
        ? aep !== undefined && envelope !== undefined
        : aep === undefined && envelope === undefined,
    'expected either proof_id, or aep and envelope',
  );
export type VerifyRequest = z.infer<typeof verifyRequestSchema>;

/** Body of `POST /v1/proofs/verify`: a request, or the document of `export?format=json`. */
export const verifyBodySchema = z.discriminatedUnion('schema_version', [
  proofExportSchema,
  verifyRequestSchema,
]);
export type VerifyBody = z.infer<typeof verifyBodySchema>;

/** A proof by its id, and another policy set to compare. */
export const replayRequestSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.replayRequest),
  proof_id: proofIdSchema,
  policy_digest: hashSchema.exactOptional(),
});

/** Body of `POST /v1/proofs/replay`: a request, or the document of `export?format=json`. */
export const replayBodySchema = z.discriminatedUnion('schema_version', [
  proofExportSchema,
  replayRequestSchema,
]);
export type ReplayBody = z.infer<typeof replayBodySchema>;
