import * as z from 'zod';
import { fromBase64 } from '../bytes.js';
import { attempt } from '../errors.js';
import { PROOF_ID_PATTERN } from '../ids.js';
import { canAssertValidity, EFFECTS } from '../status.js';
import { isTime, TIME_PATTERN } from '../time.js';

export const HASH_PATTERN = /^[0-9a-f]{64}$/;
/** 32 bytes in base64url; the last character has no trailing bits. */
export const BYTES32_BASE64URL_PATTERN = /^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/;
export const BYTES32_BASE64_PATTERN = /^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/;
export const BYTES64_BASE64_PATTERN = /^[A-Za-z0-9+/]{85}[AQgw]==$/;
const BASE64_PATTERN =
  /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$/;
export const TENANT_ID_PATTERN = /^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$/;
export const ACTION_PATTERN = /^[A-Z0-9_.:-]{1,128}$/;

export const matching = (pattern: RegExp, message: string) => z.string().regex(pattern, message);

export const proofIdSchema = matching(PROOF_ID_PATTERN, 'expected a proof id');
/** SHA-256 in lower-case hex, without a prefix. */
export const hashSchema = matching(HASH_PATTERN, 'expected 64 lower-case hex characters');
export const keyIdSchema = matching(BYTES32_BASE64URL_PATTERN, 'expected an RFC 7638 thumbprint');
export const publicKeySchema = matching(
  BYTES32_BASE64URL_PATTERN,
  'expected 32 bytes in base64url',
);
/** A Merkle hash, in base64 as in checkpoints and tlog-proofs. */
export const merkleHashSchema = matching(BYTES32_BASE64_PATTERN, 'expected 32 bytes in base64');
export const signatureSchema = matching(BYTES64_BASE64_PATTERN, 'expected 64 bytes in base64');
/**
 * Base64 of any length. The decoder checks the form: a regular expression overflows the stack on
 * texts of some megabytes.
 */
export const base64Schema = z
  .string()
  .refine((text) => attempt(() => fromBase64(text)) !== undefined, 'expected canonical base64')
  .meta({ pattern: BASE64_PATTERN.source });
export const timeSchema = z
  .string()
  .refine(isTime, 'expected RFC 3339 UTC with milliseconds, as in 2026-11-20T17:29:00.123Z')
  .meta({ format: 'date-time', pattern: TIME_PATTERN.source });
export const tenantIdSchema = matching(
  TENANT_ID_PATTERN,
  'expected 1 to 128 of A-Z a-z 0-9 _ . : -, beginning with a letter or digit',
);
export const actionSchema = matching(
  ACTION_PATTERN,
  'expected an upper-case token: 1 to 128 of A-Z 0-9 _ . : -',
);
export const environmentSchema = z.enum(['sandbox', 'live']);
export const effectSchema = z.enum(EFFECTS);
export const artifactKindSchema = z.enum(['proof', 'certificate', 'passport', 'trust']);
export const logIndexSchema = z.int().nonnegative();

/** The id of a run: a UUIDv7 of the agent, in the form of a proof id. */
export const runIdSchema = matching(
  PROOF_ID_PATTERN,
  'expected a UUIDv7 as 32 lower-case hex characters',
);

/** The requests of a run are numbered from 0. */
const MAX_SEQ = 10_000;

/** A run, and the number of a request in it. */
export const runSchema = z.strictObject({
  id: runIdSchema,
  seq: z.int().nonnegative().max(MAX_SEQ),
});
export type Run = z.infer<typeof runSchema>;

export type Environment = z.infer<typeof environmentSchema>;

export const TEXT_MAX = 512;

/**
 * Text of `min` to `max` Unicode code points. A refinement counts them, because validators define
 * length differently and the limits of a signed format must not vary.
 */
export const textOf = (min: number, max: number) =>
  z
    .string()
    .refine((text) => {
      if (text.length > 2 * max) return false;
      const points = Array.from(text).length;
      return points >= min && points <= max;
    }, `expected ${min} to ${max} characters`)
    // JSON Schema counts code points as well.
    .meta({ minLength: min, maxLength: max });

/** For `refine`: distinct items in ascending order; strings by UTF-16 code units. */
export const isAscending = <T extends string | number>(items: readonly T[]): boolean =>
  items.every((item, i) => i === 0 || items[i - 1]! < item);

/** A page of a list, with the cursor of the next page; null after the last page. */
export const pageOf = <Version extends string, Items extends z.core.$ZodShape>(
  version: Version,
  items: Items,
) =>
  z.strictObject({
    schema_version: z.literal(version),
    ...items,
    next_cursor: z.string().nullable(),
  });

/** A name or reference that a caller chose. */
export const textSchema = textOf(1, TEXT_MAX);

type Assertion<Member extends string> = Record<Member, string> & { can_assert_validity: boolean };

/** Whether validity is asserted exactly when the status asserts it. */
export const assertsByStatus = (of: Assertion<'verification_status'>): boolean =>
  of.can_assert_validity === canAssertValidity(of.verification_status);

const ASSERTION_FAULT = {
  path: ['can_assert_validity'],
  message: 'must be true exactly for a status that asserts validity',
};

/** For zod's `check`: {@link assertsByStatus} must hold. */
export const assertionCheck = z.refine<Assertion<'verification_status'>>(
  assertsByStatus,
  ASSERTION_FAULT,
);

/** {@link assertionCheck} of a document whose status is its member `status`. */
export const statusAssertionCheck = z.refine<Assertion<'status'>>(
  (of) => of.can_assert_validity === canAssertValidity(of.status),
  ASSERTION_FAULT,
);
