import * as z from 'zod';
import { canAssertValidity, STATUSES } from '../status.js';
import { SCHEMA } from './ids.js';
import {
  effectSchema,
  keyIdSchema,
  logIndexSchema,
  proofIdSchema,
  timeSchema,
} from './primitives.js';

/** Every check of a proof, in the order in which they are made. */
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
] as const;

/** Made of a registry's row besides: what is published beside the entry is what the AEP says. */
export const ROW_CHECK_NAME = 'published_columns';

/** One check: `detail` says what was found, for people. */
export const checkSchema = z.strictObject({
  name: z.enum([...CHECK_NAMES, ROW_CHECK_NAME]),
  result: z.enum(['pass', 'fail', 'not_applicable']),
  detail: z.string().exactOptional(),
});
export type Check = z.infer<typeof checkSchema>;
export type CheckName = Check['name'];

const statusSchema = z.enum(STATUSES);

/**
 * What the registry says of a proof: the verdict in force, and every revocation in the log. The same
 * verdict and revocations always make the same statement.
 */
export const verdictStatementSchema = z
  .strictObject({
    /** Of the proof itself. */
    verification_status: statusSchema,
    can_assert_validity: z.boolean(),
    artifacts: z.strictObject({
      proof: statusSchema,
      passport: statusSchema,
      certificate: statusSchema,
      trust: statusSchema,
    }),
    /** When the verification system established it; null while it has not looked. */
    verified_at: timeSchema.nullable(),
    /** Leaves of the log that are spoken for: all that the verdict saw, and every revocation counted. */
    log_size: logIndexSchema,
  })
  .refine((said) => said.can_assert_validity === canAssertValidity(said.verification_status), {
    path: ['can_assert_validity'],
    message: 'does not follow from the status',
  });
export type VerdictStatement = z.infer<typeof verdictStatementSchema>;

/** Made by the engine besides: of the submission against the registry, and of what became of it. */
export const VERIFY_CHECK_NAMES = [
  'registered',
  ...CHECK_NAMES,
  ROW_CHECK_NAME,
  'submitted_aep',
  'submitted_envelope',
  'submitted_record',
  'submitted_entry',
  'submitted_inclusion',
  'submitted_keys',
  'submitted_verdict',
  'verdict',
  'not_revoked',
  'not_expired',
] as const;

export const verifyCheckSchema = z.strictObject({
  name: z.enum(VERIFY_CHECK_NAMES),
  result: z.enum(['pass', 'fail', 'not_applicable']),
  /** What was found, for people; absent when it passed. */
  detail: z.string().exactOptional(),
});
export type VerifyCheck = z.infer<typeof verifyCheckSchema>;

/** Why nothing is asserted, in the order in which it is asked. */
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

/** The signing key as the log has it. A key that a submission carries is compared and never used. */
export const verdictKeySchema = z.strictObject({
  key_id: keyIdSchema,
  source: z.literal('log'),
  /** For the place of the proof in the log; of a proof that is not there, for the end of the log. */
  state: z.enum(['active', 'retired', 'compromised', 'unknown']),
  activated_at_index: logIndexSchema.nullable(),
  retired_at_index: logIndexSchema.nullable(),
  /** The first index whose signatures do not count. */
  compromised_from_index: logIndexSchema.nullable(),
});
export type VerdictKey = z.infer<typeof verdictKeySchema>;

/** Answer of `POST /v1/proofs/verify`. INVALID is said by the engine only, never in public. */
export const verdictSchema = z
  .strictObject({
    schema_version: z.literal(SCHEMA.verdict),
    proof_id: proofIdSchema,
    /** Null when the registry has no such proof of this tenant. */
    effect: effectSchema.nullable(),
    status: z.enum([...STATUSES, 'INVALID']),
    can_assert_validity: z.boolean(),
    /** Null exactly when validity is asserted. */
    cause: z.enum(VERDICT_CAUSES).nullable(),
    checks: z.array(verifyCheckSchema),
    /** Null when nothing names a key. */
    key: verdictKeySchema.nullable(),
    /** What the registry says of its own proof now; null when it has none. */
    verdict: verdictStatementSchema.nullable(),
    /** Leaves in the log when it was asked. */
    log_size: logIndexSchema,
  })
  .refine((said) => said.can_assert_validity === canAssertValidity(said.status), {
    path: ['can_assert_validity'],
    message: 'does not follow from the status',
  });
export type Verdict = z.infer<typeof verdictSchema>;
