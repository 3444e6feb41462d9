import * as z from 'zod';
import { PACKAGE_ID_PATTERN, SHARE_TOKEN_PATTERN } from '../ids.js';
import { SCHEMA } from './ids.js';
import {
  artifactKindSchema,
  hashSchema,
  logIndexSchema,
  matching,
  pageOf,
  proofIdSchema,
  textSchema,
  timeSchema,
} from './primitives.js';

/** Body of `POST /v1/proofs/{proof_id}/revocations`. */
export const revocationRequestSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.revocationRequest),
  artifact_kind: artifactKindSchema,
  /** The reason is stored privately; only the hash of the salted reason document is public. */
  reason: textSchema,
  /** Who revokes, in the tenant's words: recorded, never validated. */
  actor: textSchema,
});

/** The first revocation of an artifact in the log. */
export const revocationSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.revocation),
  proof_id: proofIdSchema,
  artifact_kind: artifactKindSchema,
  status: z.literal('REVOKED'),
  /** Hash of the first reason; later reasons do not replace it. */
  reason_hash: hashSchema,
  leaf_index: logIndexSchema,
  time: timeSchema,
});
export type Revocation = z.infer<typeof revocationSchema>;

/** The body of a 202: the revocation is durable and not yet in the log. */
export const revocationStatusSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.revocationStatus),
  proof_id: proofIdSchema,
  artifact_kind: artifactKindSchema,
  state: z.literal('pending'),
});

/** Why an artifact was revoked. Private: the log has its hash. */
export const revocationReasonSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.revocationReason),
  proof_id: proofIdSchema,
  artifact_kind: artifactKindSchema,
  reason: z.string(),
  actor: z.string(),
  /** 32 random bytes in hex, so that a guessed reason cannot be confirmed from its public hash. */
  salt: hashSchema,
});
export type RevocationReason = z.infer<typeof revocationReasonSchema>;

export const shareTokenSchema = matching(
  SHARE_TOKEN_PATTERN,
  'expected a share token: share_ and 43 base64url characters',
);
export const packageIdSchema = matching(
  PACKAGE_ID_PATTERN,
  'expected a package id: pkg_ and 32 lower-case hex characters',
);

/** The members of a document about a share token, which shares an artifact of one proof, or a package. */
const sharing = <Members extends z.core.$ZodShape>(members: Members) =>
  z.discriminatedUnion('artifact_kind', [
    z.strictObject({ ...members, artifact_kind: artifactKindSchema, proof_id: proofIdSchema }),
    z.strictObject({
      ...members,
      artifact_kind: z.literal('package'),
      package_id: packageIdSchema,
    }),
  ]);

/** Body of `POST /v1/share-tokens`. */
export const shareTokenRequestSchema = sharing({
  schema_version: z.literal(SCHEMA.shareTokenRequest),
  /** The token resolves until this time; without this member, until the token is revoked. */
  expires_at: timeSchema.exactOptional(),
});
export type ShareTokenRequest = z.infer<typeof shareTokenRequestSchema>;

const tokenMembers = {
  /** SHA-256 of the token's text; identifies the token in lists and revocations. */
  token_hash: hashSchema,
  created_at: timeSchema,
  expires_at: timeSchema.nullable(),
};

/** Answer of `POST /v1/share-tokens`. */
export const createdShareTokenSchema = sharing({
  schema_version: z.literal(SCHEMA.shareToken),
  /** The token is returned only here; the service stores its hash. */
  share_token: shareTokenSchema,
  ...tokenMembers,
});

const listedShareTokenSchema = sharing({ ...tokenMembers, revoked_at: timeSchema.nullable() });
export type ListedShareToken = z.infer<typeof listedShareTokenSchema>;

/** Answer of `GET /v1/share-tokens`, newest first. */
export const shareTokenListSchema = pageOf(SCHEMA.shareTokenList, {
  share_tokens: z.array(listedShareTokenSchema),
});

const MOST_MEMBERS = 100;

/** The proofs of a package in display order, each once. */
export const packageMembersSchema = z
  .array(proofIdSchema)
  .min(1)
  .max(MOST_MEMBERS)
  .superRefine((ids, context) => {
    const seen = new Set<string>();
    ids.forEach((id, index) => {
      if (seen.has(id)) {
        context.addIssue({ code: 'custom', path: [index], message: 'duplicate proof id' });
      }
      seen.add(id);
    });
  })
  .meta({ uniqueItems: true });

/** Body of `POST /v1/packages`. */
export const packageRequestSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.packageRequest),
  /** 1 to 100 different proofs of admissions, in display order. */
  proof_ids: packageMembersSchema,
});

const packageMembers = {
  package_id: packageIdSchema,
  proof_ids: packageMembersSchema,
  created_at: timeSchema,
};

export const packageSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.package),
  ...packageMembers,
});
export type TrustPackage = z.infer<typeof packageSchema>;

/** Answer of `GET /v1/packages`, newest first. */
export const packageListSchema = pageOf(SCHEMA.packageList, {
  packages: z.array(z.strictObject(packageMembers)),
});
