import * as z from 'zod';
import { equalBytes, fromHex, toHex, utf8 } from '../bytes.js';
import { canonicalize } from '../canonical-json.js';
import type { Sha256 } from '../hash.js';
import { parseStrict } from '../json.js';
import { SCHEMA } from '../schemas/ids.js';
import { packageIdSchema } from '../schemas/lifecycle.js';
import { artifactKindSchema, hashSchema, proofIdSchema } from '../schemas/primitives.js';
import { malformed } from './malformed.js';

/**
 * What a share token shows, in a bodies file: canonical JSON. The token itself is in no file, only
 * its SHA-256, which cannot be turned back. One that was revoked or is over shows nothing.
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

/** SHA-256 of the token's text. */
export function tokenHash(sha256: Sha256, token: string): Uint8Array {
  return sha256(utf8(token));
}

/** The id under which a token is indexed, 16 bytes. */
export function shareIndexId(hash: Uint8Array): Uint8Array {
  return hash.subarray(0, 16);
}

export function encodeShare(share: Share): Uint8Array {
  return utf8(canonicalize(share));
}

/**
 * What the token of that hash shows. `malformed_snapshot` for a record that is none, or another
 * token's: a row is found by half of the hash only.
 */
export function openShare(record: Uint8Array, hash: Uint8Array): Share {
  const parsed = shareSchema.safeParse(parsedShare(record));
  if (!parsed.success) throw malformed('not a share record', parsed.error);
  if (!equalBytes(fromHex(parsed.data.token_hash), hash)) {
    throw malformed(`the index points to another token's record than that of ${toHex(hash)}`);
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
