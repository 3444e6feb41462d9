import * as z from 'zod';
import { equalBytes, fromHex, toHex } from '../bytes.js';
import { ProtocolError } from '../errors.js';
import { canonicalBytes, parseStrict, type JsonValue } from '../json.js';
import { mapKey } from '../map/nodes.js';
import type { MapValue } from '../map/page.js';
import { SCHEMA } from '../schemas/ids.js';
import { packageIdSchema, packageMembersSchema } from '../schemas/lifecycle.js';
import { artifactKindSchema, hashSchema, proofIdSchema } from '../schemas/primitives.js';

/** The values of the map under `shares_root` (spec/snapshot.md, Map). */

const shareMembers = { schema_version: z.literal(SCHEMA.shareRecord), token_hash: hashSchema };
const shareRecordSchema = z.union([
  z.strictObject({ ...shareMembers, artifact_kind: artifactKindSchema, id: proofIdSchema }),
  z.strictObject({ ...shareMembers, artifact_kind: z.literal('package'), id: packageIdSchema }),
]);
export type ShareRecord = z.infer<typeof shareRecordSchema>;

const packageRecordSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.packageRecord),
  package_id: packageIdSchema,
  members: packageMembersSchema,
});
export type PackageRecord = z.infer<typeof packageRecordSchema>;

/** @param tokenHash SHA-256 of the token; the map key contains its first half */
export const shareMapKey = (tokenHash: Uint8Array): Uint8Array =>
  mapKey('share', tokenHash.subarray(0, 16));

export const packageMapKey = (packageId: string): Uint8Array =>
  mapKey('package', fromHex(packageId.slice('pkg_'.length)));

/** @throws ProtocolError `malformed_record`; also if only the first half of the token's hash matches */
export function parseShare(value: MapValue, hash: Uint8Array): ShareRecord {
  const share = parseCanonical(shareRecordSchema, value);
  if (share.token_hash === toHex(hash)) return share;
  throw new ProtocolError('malformed_record', 'the share belongs to another token');
}

/** @throws ProtocolError `malformed_record` */
export function parsePackage(value: MapValue, id: string): PackageRecord {
  const found = parseCanonical(packageRecordSchema, value);
  if (found.package_id === id) return found;
  throw new ProtocolError('malformed_record', `the record is not of ${id}`);
}

function parseCanonical<T extends JsonValue>(schema: z.ZodType<T>, value: MapValue): T {
  const { record, history } = value;
  let cause: unknown;
  try {
    const document = schema.parse(parseStrict(record));
    if (history.length === 0 && equalBytes(canonicalBytes(document), record)) return document;
  } catch (error) {
    cause = error;
  }
  throw new ProtocolError('malformed_record', 'the value is not a share or package record', {
    cause,
  });
}
