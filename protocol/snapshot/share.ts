import * as z from 'zod';
import { equalBytes, fromHex, toHex, utf8 } from '../bytes.js';
import { canonicalize, parseStrict } from '../json.js';
import type { Sha256 } from '../hash.js';
import { SCHEMA } from '../schemas/ids.js';
import { packageIdSchema } from '../schemas/lifecycle.js';
import { artifactKindSchema, hashSchema, proofIdSchema } from '../schemas/primitives.js';
import { malformed } from './malformed.js';

/**
 * The artifact or package of a share token, in a bodies file as canonical JSON. Files contain only
 * the token's SHA-256. A revoked or expired token shows nothing.
 */
export const shareSchema = z.union([
  z.strictObject({
    schema_version: z.literal(SCHEMA.share),
    token_hash: hashSchema,
    artifact_kind: artifactKindSchema,
    proof_id: proofIdSchema,
  }),
  z.strictObject({
    schema_version: z.literal(SCHEMA.share),
    token_hash: hashSchema,
    artifact_kind: z.literal('package'),
    package_id: packageIdSchema,
  }),
  z.strictObject({
    schema_version: z.literal(SCHEMA.share),
    token_hash: hashSchema,
    artifact_kind: z.null(),
  }),
]);
export type Share = z.infer<typeof shareSchema>;

export function tokenHash(sha256: Sha256, token: string): Uint8Array {
  return sha256(utf8(token));
}

export function shareIndexId(hash: Uint8Array): Uint8Array {
  return hash.subarray(0, 16);
}

export function encodeShare(share: Share): Uint8Array {
  return utf8(canonicalize(share));
}

/**
 * The share of the token with that hash. Throws `malformed_snapshot` for an invalid record and for
 * the record of another token, because the index compares only the first half of the hash.
 */
export function openShare(record: Uint8Array, hash: Uint8Array): Share {
  const parsed = shareSchema.safeParse(parsedShare(record));
  if (!parsed.success) throw malformed('not a share record', parsed.error);
  if (!equalBytes(fromHex(parsed.data.token_hash), hash)) {
    throw malformed(`the index points to another token's record instead of ${toHex(hash)}`);
  }
  return parsed.data;
}

function parsedShare(record: Uint8Array): unknown {
  try {
    return parseStrict(record);
  } catch (cause) {
    throw malformed('a share record is not JSON', cause);
  }
}
