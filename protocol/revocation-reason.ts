import { canonicalBytes } from './canonical-json.js';
import { parseStrict } from './json.js';
import { SCHEMA } from './schemas/ids.js';
import { revocationReasonSchema, type RevocationReason } from './schemas/lifecycle.js';

/** The canonical bytes; their SHA-256 is the `reason_hash` of a status entry. */
export function revocationReasonBytes(
  reason: Omit<RevocationReason, 'schema_version'>,
): Uint8Array {
  return canonicalBytes(
    revocationReasonSchema.parse({ schema_version: SCHEMA.revocationReason, ...reason }),
  );
}

/** @throws ProtocolError or ZodError unless the bytes are a reason document */
export function parseRevocationReason(bytes: Uint8Array): RevocationReason {
  return revocationReasonSchema.parse(parseStrict(bytes));
}
