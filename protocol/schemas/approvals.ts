import * as z from 'zod';
import { fromBase64Url } from '../bytes.js';
import { attempt } from '../errors.js';
import { nonceSchema } from './admission.js';
import { apiKeyIdSchema } from './api-keys.js';
import { SCHEMA } from './ids.js';
import {
  hashSchema,
  logIndexSchema,
  pageOf,
  proofIdSchema,
  publicKeySchema,
  tenantIdSchema,
  textSchema,
  timeSchema,
} from './primitives.js';

const BYTES_MAX = 4_096;
const MAX_ORIGINS = 16;

const bytesSchema = z
  .string()
  .min(1)
  .max(BYTES_MAX)
  .refine((text) => attempt(() => fromBase64Url(text)) !== undefined, 'expected base64url');

const approverSignatureSchema = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('ed25519'), sig: bytesSchema }),
  z.strictObject({
    type: z.literal('webauthn'),
    authenticator_data: bytesSchema,
    client_data_json: bytesSchema,
    sig: bytesSchema,
  }),
]);
export type ApproverSignature = z.infer<typeof approverSignatureSchema>;

/** A JWK with the members of its RFC 7638 thumbprint only. */
const approverKeySchema = z.discriminatedUnion('kty', [
  z.strictObject({ kty: z.literal('OKP'), crv: z.literal('Ed25519'), x: publicKeySchema }),
  z.strictObject({
    kty: z.literal('EC'),
    crv: z.literal('P-256'),
    x: publicKeySchema,
    y: publicKeySchema,
  }),
]);
export type ApproverKey = z.infer<typeof approverKeySchema>;

const webauthnSchema = z.strictObject({
  rp_id: textSchema,
  origins: z.array(textSchema).min(1).max(MAX_ORIGINS),
  credential_id: bytesSchema,
});

/** The key of an approver. Private: the log has its hash, and the salt prevents guessing. */
export const registrationSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.approver),
    tenant_id: tenantIdSchema,
    approver: textSchema,
    public_key: approverKeySchema,
    webauthn: webauthnSchema.nullable(),
    /** 32 random bytes in hex. */
    salt: hashSchema,
    /** Proves possession of the key. */
    signature: approverSignatureSchema,
  })
  .refine(({ public_key, webauthn }) => public_key.kty === 'OKP' || webauthn !== null, {
    path: ['webauthn'],
    message: 'required for a P-256 key',
  });
export type Registration = z.infer<typeof registrationSchema>;

const listedApproverSchema = z.strictObject({
  registration_hash: hashSchema,
  registration: registrationSchema,
  state: z.enum(['active', 'retired']),
  leaf_index: logIndexSchema.describe('The log entry that activated the registration.'),
  created_by: apiKeyIdSchema
    .nullable()
    .describe(
      'The API key that registered the approver; null when the operator registered the approver.',
    ),
  created_at: timeSchema,
});

/** Answer of `POST /v1/approvers`, and of a retirement. */
export const approverSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.tenantApprover),
  ...listedApproverSchema.shape,
});
export type RegisteredApprover = z.infer<typeof approverSchema>;

/** Answer of `GET /v1/approvers`, newest first. */
export const approverListSchema = pageOf(SCHEMA.tenantApproverList, {
  approvers: z.array(listedApproverSchema),
});

export const approvalStatementSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.approval),
  tenant_id: tenantIdSchema,
  proof_id: proofIdSchema.describe('The proof that requires an approval.'),
  aep_hash: hashSchema.describe('The hash of the AEP of this proof.'),
  decision: z.enum(['approve', 'reject']),
  registration_hash: hashSchema.describe('The registration of the approver.'),
  expires_at: timeSchema.describe('The approval has no effect from this time on.'),
  nonce: nonceSchema,
});
export type ApprovalStatement = z.infer<typeof approvalStatementSchema>;

/** An approver’s signed decision about a pending proof. */
export const approvalSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.approvalEnvelope),
  statement: approvalStatementSchema,
  signature: approverSignatureSchema,
});
export type Approval = z.infer<typeof approvalSchema>;

/** Inputs of a second decision. Private: its AEP has only the hashes of `envelope` and `registration`. */
export const storedApprovalSchema = z.strictObject({
  envelope: approvalSchema,
  registration: registrationSchema,
  /** The reasons of the pending proof. */
  reasons: z.array(textSchema),
});
export type StoredApproval = z.infer<typeof storedApprovalSchema>;
