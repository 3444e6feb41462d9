import * as z from 'zod';
import { SCHEMA } from './ids.js';
import { environmentSchema, matching, pageOf, textSchema, timeSchema } from './primitives.js';

/** The rights of an API key; `admin` includes all others. */
export const SCOPES = [
  'admit',
  'approve',
  'approvers',
  'read',
  'export',
  'verify',
  'lifecycle',
  'keys',
  'policy',
  'admin',
] as const;
export const scopeSchema = z.enum(SCOPES);
export type Scope = z.infer<typeof scopeSchema>;

/** Scopes that a restricted key cannot have: the key could lift its restriction or approve its own actions. */
export const UNRESTRICTED_SCOPES: readonly Scope[] = ['approvers', 'keys', 'policy', 'admin'];

const MOST_PATTERNS = 32;

/** Patterns in which `*` matches any characters; at least one pattern must match. */
const patternsOf = (name: z.ZodType<string>) => z.array(name).min(1).max(MOST_PATTERNS);

/** Limits what an API key may admit. */
export const keyRestrictionSchema = z
  .strictObject({
    agent_id: textSchema
      .describe('The agent that each envelope must name. Execute requests are rejected.')
      .exactOptional(),
    actions: patternsOf(z.string().regex(/^[A-Z0-9_.:*-]{1,128}$/, 'expected an action or pattern'))
      .describe('Patterns, in which `*` matches any characters. The action must match one.')
      .exactOptional(),
    tools: patternsOf(textSchema)
      .describe('Patterns. The request must name a tool that matches one of them.')
      .exactOptional(),
    environment: environmentSchema
      .describe(
        'The service rejects every admission if this differs from the tenant’s environment.',
      )
      .exactOptional(),
  })
  .refine((limits) => Object.keys(limits).length > 0, 'expected at least one member')
  .meta({ minProperties: 1 });
export type KeyRestriction = z.infer<typeof keyRestrictionSchema>;

/**
 * An engine key: `svc_sk_<id>_<secret><crc>`.
 *
 * - id: 12 characters of [a-z0-9], public, identifies the row with the secret's hash;
 * - secret: 43 base64url characters, 32 random bytes;
 * - crc: CRC-32 (IEEE) of everything before it, 6 base62 digits, most significant first.
 *
 * The checksum does not stop an attacker. The checksum lets a secret scanner recognize a leaked key offline, and
 * separates a typing error from a wrong key.
 */
export const API_KEY_PATTERN = /^svc_sk_([a-z0-9]{12})_([A-Za-z0-9_-]{43})([0-9A-Za-z]{6})$/;
export const API_KEY_ID_PATTERN = /^[a-z0-9]{12}$/;

export const apiKeySchema = matching(API_KEY_PATTERN, 'expected an API key');
export const apiKeyIdSchema = matching(API_KEY_ID_PATTERN, 'expected an API key id');

/** Body of `POST /v1/keys`. */
export const apiKeyRequestSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.apiKeyRequest),
    scopes: z.array(scopeSchema).min(1).max(SCOPES.length),
    restriction: keyRestrictionSchema.exactOptional(),
    /** When the key expires: no later than the calling key. */
    expires_at: timeSchema.exactOptional(),
  })
  .superRefine(({ scopes, restriction }, context) => {
    scopes.forEach((scope, index) => {
      if (restriction === undefined || !UNRESTRICTED_SCOPES.includes(scope)) return;
      const message = 'a restricted key cannot manage keys, approvers or overlays';
      context.addIssue({ code: 'custom', path: ['scopes', index], message });
    });
  });
export type ApiKeyRequest = z.infer<typeof apiKeyRequestSchema>;

const members = {
  key_id: apiKeyIdSchema,
  scopes: z.array(scopeSchema),
  restriction: keyRestrictionSchema.nullable(),
  /** The id of the key that created this key; null when the operator issued this key. */
  created_by: apiKeyIdSchema.nullable(),
  created_at: timeSchema,
  expires_at: timeSchema.nullable(),
};

/** Answer of `POST /v1/keys`. */
export const createdApiKeySchema = z.strictObject({
  schema_version: z.literal(SCHEMA.apiKey),
  /** The key is returned only here; the service stores its hash. */
  api_key: apiKeySchema,
  ...members,
});
export type CreatedApiKey = z.infer<typeof createdApiKeySchema>;

const listedApiKeySchema = z.strictObject({
  ...members,
  state: z.enum(['active', 'expired', 'revoked']),
  revoked_at: timeSchema.nullable(),
});
export type ListedApiKey = z.infer<typeof listedApiKeySchema>;

/** Answer of `GET /v1/keys`, newest first. */
export const apiKeyListSchema = pageOf(SCHEMA.apiKeyList, { keys: z.array(listedApiKeySchema) });
export type ApiKeyList = z.infer<typeof apiKeyListSchema>;
