import * as z from 'zod';
import { STATUSES } from '../status.js';
import { SCHEMA } from './ids.js';
import {
  assertionCheck,
  effectSchema,
  keyIdSchema,
  logIndexSchema,
  proofIdSchema,
  statusAssertionCheck,
  timeSchema,
} from './primitives.js';

/** Every check of a proof, in order. */
export const CHECK_NAMES = [
  'request_hash',
  'aep_canonical',
  'aep_schema',
  'aep_identity',
  'aep_hash',
  'signing_key',
  'signature',
  'proof_record_hash',
  'log_entry',
  'inclusion',
  'approval',
] as const;

/** Name of the check that the published columns of the registry's row match the AEP. */
export const ROW_CHECK_NAME = 'published_columns';

export const checkSchema = z.strictObject({
  name: z.enum([...CHECK_NAMES, ROW_CHECK_NAME]),
  result: z.enum(['pass', 'fail', 'not_applicable']),
  detail: z.string().exactOptional(),
});
export type Check = z.infer<typeof checkSchema>;
export type CheckName = Check['name'];

const statusSchema = z.enum(STATUSES);

/**
 * The registry's statement about a proof: the verdict in force and every revocation in the log. Equal
 * verdicts and revocations always give an equal statement.
 */
export const verdictStatementSchema = z
  .strictObject({
    verification_status: statusSchema,
    can_assert_validity: z.boolean(),
    artifacts: z.strictObject({
      proof: statusSchema,
      passport: statusSchema,
      certificate: statusSchema,
      trust: statusSchema,
    }),
    verified_at: timeSchema.nullable(),
    /** The tree size of the verdict or, if greater, the size after the last revocation or key compromise. */
    log_size: logIndexSchema,
  })
  .check(assertionCheck);
export type VerdictStatement = z.infer<typeof verdictStatementSchema>;

/**
 * The checks of `POST /v1/proofs/verify`: of the proof, of the submission against the registry, and of the proof's
 * current status.
 */
export const VERIFY_CHECK_NAMES = [
  'registered',
  ...CHECK_NAMES,
  ROW_CHECK_NAME,
  'submitted_aep',
  'submitted_envelope',
  'submitted_record',
  'submitted_disclosures',
  'submitted_entry',
  'submitted_inclusion',
  'submitted_keys',
  'submitted_approval',
  'submitted_verdict',
  'verdict',
  'not_revoked',
  'not_expired',
] as const;

export const verifyCheckSchema = checkSchema.extend({ name: z.enum(VERIFY_CHECK_NAMES) });
export type VerifyCheck = z.infer<typeof verifyCheckSchema>;

/** Why validity is not asserted, in order of precedence. */
export const VERDICT_CAUSES = [
  'not_in_registry',
  'key_small_order',
  'key_unknown',
  'key_compromised',
  'key_retired',
  'bad_signature',
  'altered',
  'not_verified_yet',
  'failed_verification',
  'revoked',
  'erased',
  'expired',
] as const;
export type VerdictCause = (typeof VERDICT_CAUSES)[number];

/** The signing key as the log states it. A submitted key is compared and never used. */
export const verdictKeySchema = z.strictObject({
  key_id: keyIdSchema,
  source: z.literal('log'),
  /** State at the log position of the proof; for an unregistered proof, at the end of the log. */
  state: z.enum(['active', 'retired', 'compromised', 'unknown']),
  activated_at_index: logIndexSchema.nullable(),
  retired_at_index: logIndexSchema.nullable(),
  compromised_from_index: logIndexSchema.nullable(),
});
export type VerdictKey = z.infer<typeof verdictKeySchema>;

/** Answer of `POST /v1/proofs/verify`. Only the engine reports INVALID, never the public API. */
export const verdictSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.verdict),
    proof_id: proofIdSchema,
    /** The effect of the proof; null when the tenant has no such proof in the registry. */
    effect: effectSchema.nullable(),
    status: z.enum([...STATUSES, 'INVALID']),
    can_assert_validity: z.boolean(),
    /** The cause; null exactly when validity is asserted. */
    cause: z.enum(VERDICT_CAUSES).nullable(),
    checks: z.array(verifyCheckSchema),
    key: verdictKeySchema.nullable(),
    /** The disclosed values of a submitted export, by name; `withheld` counts the other values. */
    disclosed: z.record(z.string(), z.unknown()).nullable(),
    withheld: z.int().nullable(),
    /** The registry's current statement about its proof with this id; null when it has no such proof. */
    verdict: verdictStatementSchema.nullable(),
    log_size: logIndexSchema,
  })
  .check(statusAssertionCheck);
export type Verdict = z.infer<typeof verdictSchema>;
