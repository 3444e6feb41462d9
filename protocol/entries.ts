import { equalBytes, fromUtf8, utf8 } from './bytes.js';
import { attempt, ProtocolError } from './errors.js';
import { isProofId, PROOF_ID_PATTERN } from './ids.js';
import { canonicalBytes, parseStrict, type JsonValue } from './json.js';
import { SCHEMA } from './schemas/ids.js';
import { revocationReasonSchema, type RevocationReason } from './schemas/lifecycle.js';
import {
  keyEntrySchema,
  logEntrySchema,
  statusEntrySchema,
  type KeyEntry,
  type LogEntry,
  type ProofEntry,
  type StatusEntry,
} from './schemas/log-entry.js';
import { HASH_PATTERN } from './schemas/primitives.js';
import { MAX_ENTRY_BYTES } from './tiles.js';
import { isTime, TIME_PATTERN } from './time.js';

export type ProofEntryInput = Omit<ProofEntry, 'schema_version' | 'type'>;
export type StatusEntryInput = Omit<StatusEntry, 'schema_version' | 'type' | 'status'>;
export type KeyEntryInput = Omit<KeyEntry, 'schema_version' | 'type' | 'use'>;

/**
 * The canonical log entry of a proof. Every field has a fixed ASCII form, so the RFC 8785 text is
 * assembled directly, several times faster on the append path.
 */
export function proofEntryBytes(input: ProofEntryInput): Uint8Array {
  if (
    !PROOF_ID_PATTERN.test(input.proof_id) ||
    !HASH_PATTERN.test(input.aep_hash) ||
    !HASH_PATTERN.test(input.proof_record_hash) ||
    !TIME_PATTERN.test(input.time)
  ) {
    throw new ProtocolError('malformed_entry', 'a field of the proof entry is malformed');
  }
  return utf8(proofEntryText(input));
}

/**
 * The text of a proof's entry without checks of its fields. The caller must verify the result
 * against the tree or with {@link parseEntry}.
 */
export function proofEntryText(input: ProofEntryInput): string {
  return (
    `{"aep_hash":"${input.aep_hash}","proof_id":"${input.proof_id}",` +
    `"proof_record_hash":"${input.proof_record_hash}",` +
    `"schema_version":"${SCHEMA.logEntry}","time":"${input.time}","type":"proof"}`
  );
}

export function statusEntryBytes(input: StatusEntryInput): Uint8Array {
  return encode(statusEntrySchema, {
    schema_version: SCHEMA.logEntry,
    type: 'status',
    status: 'REVOKED',
    proof_id: input.proof_id,
    artifact_kind: input.artifact_kind,
    reason_hash: input.reason_hash,
    time: input.time,
  });
}

/**
 * The canonical log entry of an AEP key event. `public_key` is base64url of the 32 bytes; only a
 * compromise has `from_index`.
 */
export function keyEntryBytes(input: KeyEntryInput): Uint8Array {
  return encode(keyEntrySchema, {
    schema_version: SCHEMA.logEntry,
    type: 'key',
    use: 'aep',
    key_id: input.key_id,
    public_key: input.public_key,
    change: input.change,
    ...(input.from_index === undefined ? {} : { from_index: input.from_index }),
    time: input.time,
  });
}

/** Parses a leaf. Throws `malformed_entry` unless it is a known entry in canonical form. */
export function parseEntry(bytes: Uint8Array): LogEntry {
  try {
    const plain = canonicalProofEntry(fromUtf8(bytes));
    if (plain !== null) return plain;
    const entry = logEntrySchema.parse(parseStrict(bytes));
    const own = entry.type === 'proof' ? proofEntryBytes(entry) : canonicalBytes(entry);
    if (bytes.length <= MAX_ENTRY_BYTES && equalBytes(own, bytes)) return entry;
  } catch (cause) {
    throw new ProtocolError('malformed_entry', 'not a log entry', { cause });
  }
  throw new ProtocolError('malformed_entry', 'log entry is not in its canonical form');
}

export function readEntry(bytes: Uint8Array): LogEntry | null {
  return attempt(() => parseEntry(bytes)) ?? null;
}

const PROOF_ENTRY = new RegExp(
  `^{"aep_hash":"([0-9a-f]{64})","proof_id":"([0-9a-f]{32})","proof_record_hash":"([0-9a-f]{64})",` +
    `"schema_version":"${SCHEMA.logEntry.replaceAll('.', '[.]')}","time":"([^"]{24})","type":"proof"}$`,
);

/**
 * The proof entry whose canonical form is the text, or null. Nearly every leaf is a proof entry,
 * whose text has one form; {@link parseEntry} handles other entries.
 */
export function canonicalProofEntry(text: string): ProofEntry | null {
  const [, aep_hash = '', proof_id = '', proof_record_hash = '', time = ''] =
    PROOF_ENTRY.exec(text) ?? [];
  if (!isProofId(proof_id) || !isTime(time)) return null;
  const schema_version = SCHEMA.logEntry;
  return { schema_version, type: 'proof', proof_id, aep_hash, proof_record_hash, time };
}

function encode(schema: { parse(document: unknown): JsonValue }, document: JsonValue): Uint8Array {
  try {
    return canonicalBytes(schema.parse(document));
  } catch (cause) {
    throw new ProtocolError('malformed_entry', 'a field of the log entry is malformed', { cause });
  }
}

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
