import * as z from 'zod';
import { publicKeysSchema } from '../snapshot/keys.js';
import { STATUSES, TRUST_CHAIN, TRUST_CHAIN_SEQUENCE } from '../status.js';
import { SCHEMA } from './ids.js';
import { packageIdSchema } from './lifecycle.js';
import { proofEntrySchema } from './log-entry.js';
import {
  artifactKindSchema,
  assertionCheck,
  effectSchema,
  environmentSchema,
  hashSchema,
  keyIdSchema,
  logIndexSchema,
  proofIdSchema,
  timeSchema,
} from './primitives.js';
import { publicEventSchema } from './proof-view.js';

const nothingSchema = z.strictObject({});

const facadeArtifactSchema = z.strictObject({
  execution_id: z.string().startsWith('exec_'),
  aep_hash: hashSchema,
  proof_record_hash: hashSchema,
  artifact_level: z.string().min(1),
  effect: effectSchema,
  environment: environmentSchema,
});

/** Replaces the execution fields in the lookup response of a package. */
const packageArtifactSchema = z.strictObject({
  artifact_level: z.string().min(1),
  package_id: packageIdSchema,
  members: z.int().positive(),
  effect: z.literal('ADMIT'),
  environment: environmentSchema,
});

/** The proofs of a package, in the order of the package, each with the verdict on its trust artifact. */
const packageReferencesSchema = z.strictObject({
  package_id: packageIdSchema,
  members: z
    .array(
      z.strictObject({
        proof_id: proofIdSchema,
        trust_id: z.string().startsWith('trust_'),
        verification_status: z.enum(STATUSES),
        can_assert_validity: z.boolean(),
      }),
    )
    .min(1),
});

const packageIntegritySchema = z.strictObject({
  /** SHA-256 of the canonical JSON array of the proof ids, in their order. */
  members_hash: hashSchema,
  log_origin: z.string().min(1),
});

const facadeIntegritySchema = z.strictObject({
  aep_hash: hashSchema,
  proof_record_hash: hashSchema,
  log_origin: z.string().min(1),
  leaf_index: logIndexSchema,
  /** The AEP key; absent for a key that the log had not activated. */
  key_id: keyIdSchema.exactOptional(),
  accepted_at: timeSchema,
});

const referenceSchema = z.string().exactOptional();
/** All ids of the proof. Only the admission of an action has more than the four required ids. */
const facadeReferencesSchema = z.looseObject({
  proof_id: proofIdSchema,
  registry_proof_id: proofIdSchema,
  registry_entry_id: z.string().startsWith('reg_'),
  execution_id: z.string().startsWith('exec_'),
  certificate_id: referenceSchema,
  cert_id: referenceSchema,
  certificate_ref: referenceSchema,
  passport_id: referenceSchema,
  passport_ref: referenceSchema,
  execution_passport_id: referenceSchema,
  trust_id: referenceSchema,
  trust_ref: referenceSchema,
  trust_asset_id: referenceSchema,
});

const facadeVerificationSchema = z
  .strictObject({
    verification_status: z.enum(STATUSES),
    can_assert_validity: z.boolean(),
    frontend_recomputed: z.literal(false),
    /** Time of the verification; absent when the lookup did not resolve. */
    verified_at: timeSchema.exactOptional(),
  })
  .check(assertionCheck);

const trustChainMemberSchema = z.strictObject({
  available: z.boolean(),
  sequence: z.array(z.enum(TRUST_CHAIN.FULL.sequence)),
});

/** Every successful public lookup, resolved or unresolved. */
export const facadeSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.facade),
  artifact_kind: artifactKindSchema,
  identifier: z.string(),
  artifact: z.union([facadeArtifactSchema, packageArtifactSchema, nothingSchema]),
  verification: facadeVerificationSchema,
  trust_chain: trustChainMemberSchema,
  mutation_allowed: z.literal(false),
  serves_authoritative_truth: z.literal(false),
  lookup: z.strictObject({ requested: z.string(), matched_on: z.string().nullable() }),
  references: z.union([facadeReferencesSchema, packageReferencesSchema, nothingSchema]),
  /** URLs of public resources by name. An AEP is never among them. */
  downloads: z.record(z.string(), z.union([z.string(), z.array(z.string())])),
  integrity: z.union([facadeIntegritySchema, packageIntegritySchema, nothingSchema]),
});
export type Facade = z.infer<typeof facadeSchema>;

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
const identifiers = Object.fromEntries(
  LOOKUP_FIELDS.map((field) => [field, askedSchema]),
) as Record<LookupField, typeof askedSchema>;

/** Body of `POST /api/public/verify`: exactly one identifier field. */
export const lookupRequestSchema = z
  .strictObject({ schema_version: z.literal(SCHEMA.lookupRequest), ...identifiers })
  .refine((body) => LOOKUP_FIELDS.filter((field) => body[field] !== undefined).length === 1, {
    message: `expected exactly one of ${LOOKUP_FIELDS.join(', ')}`,
  });

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

/** Members of every view: the requested artifact and its verdict. */
const viewMembers = {
  artifact_kind: artifactKindSchema,
  identifier: z.string(),
  lookup: z.strictObject({ requested: z.string(), matched_on: z.string().nullable() }),
  verification_status: z.enum(STATUSES),
  can_assert_validity: z.boolean(),
};

/**
 * History of an artifact: `/history` of a proof, certificate or passport, `/timeline` of a trust
 * artifact.
 * The events are those of the proof, the artifact and every artifact that it depends on, oldest first; empty when the
 * lookup did not resolve.
 */
export const historySchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.history),
    ...viewMembers,
    events: z.array(publicEventSchema),
  })
  .check(assertionCheck);
export type PublicHistory = z.infer<typeof historySchema>;

const chainLinkSchema = z.strictObject({
  stage: z.enum(TRUST_CHAIN_SEQUENCE),
  identifier: z.string(),
  /** Null for the stages execution and evidence, which have no verdict. */
  verification_status: z.enum(STATUSES).nullable(),
  can_assert_validity: z.boolean(),
});

/** `/trust-chain` of a certificate or passport, `/chain` of a trust artifact. */
export const trustChainSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.trustChain),
    ...viewMembers,
    available: z.boolean(),
    sequence: z.array(z.enum(TRUST_CHAIN_SEQUENCE)),
    links: z.array(chainLinkSchema),
  })
  .check(assertionCheck);
export type PublicTrustChain = z.infer<typeof trustChainSchema>;

/**
 * `/package` of a trust artifact: in one document, its public documents and the tlog-proof of the log entry of its
 * proof. `evidence` is null when the lookup did not resolve.
 */
export const trustPackageSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.trustPackage),
    ...viewMembers,
    facade: facadeSchema,
    history: historySchema,
    chain: trustChainSchema,
    evidence: z
      .strictObject({
        log_entry: proofEntrySchema,
        leaf_index: logIndexSchema,
        /** A C2SP `.tlog-proof`: leaf index, path and signed checkpoint. */
        tlog_proof: z.string(),
        /** The document at `/api/public/keys`. */
        keys: publicKeysSchema,
      })
      .nullable(),
  })
  .check(assertionCheck);
export type PublicTrustPackage = z.infer<typeof trustPackageSchema>;
