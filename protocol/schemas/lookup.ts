import * as z from 'zod';
import { SCHEMA } from './ids.js';

export const LOOKUP_FIELDS = [
  'proof_id',
  'certificate_id',
  'passport_id',
  'trust_id',
  'trust_asset_id',
  'share_token',
  'package_id',
  'identifier',
] as const;
export type LookupField = (typeof LOOKUP_FIELDS)[number];

const askedSchema = z.string().exactOptional();

/** Body of `POST /api/public/verify` (spec 2.3): exactly one identifier field. */
export const lookupRequestSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.lookupRequest),
    proof_id: askedSchema,
    certificate_id: askedSchema,
    passport_id: askedSchema,
    trust_id: askedSchema,
    trust_asset_id: askedSchema,
    share_token: askedSchema,
    package_id: askedSchema,
    identifier: askedSchema,
  })
  .refine((body) => LOOKUP_FIELDS.filter((field) => body[field] !== undefined).length === 1, {
    message: `expected exactly one of ${LOOKUP_FIELDS.join(', ')}`,
  });
export type LookupRequest = z.infer<typeof lookupRequestSchema>;

/** The field of a valid lookup request, and its identifier. */
export function requestedIdentifier(request: LookupRequest): {
  field: LookupField;
  identifier: string;
} {
  const field = LOOKUP_FIELDS.find((name) => request[name] !== undefined)!;
  return { field, identifier: request[field]! };
}

/** Response for an unknown proof identifier (spec 2.2). */
export const notFoundSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.notFound),
  result: z.literal('NOT_FOUND'),
  verification_status: z.literal('NOT_FOUND'),
  can_assert_validity: z.literal(false),
  honest_states: z.tuple([
    z.literal('VERIFIED'),
    z.literal('NOT_FOUND'),
    z.literal('REVOKED'),
    z.literal('EXPIRED'),
  ]),
  verdict_fabricated: z.literal(false),
});
export type NotFound = z.infer<typeof notFoundSchema>;
