import { equalBytes, fromHex, utf8 } from '../bytes.js';
import type { ProofId } from '../ids.js';
import type { ArtifactKind } from '../status.js';
import { malformed } from './malformed.js';

/**
 * One proof in a bodies file, rendered once: the JSON text that differs per artifact kind, and the
 * text that all kinds share. A response body is head ‖ part ‖ tail (see head.ts), so answering
 * needs one contiguous read and no JSON.
 *
 * Bytes, integers little-endian:
 *   0  version, 1            1  zero × 3
 *   4  length of the parts in the order of {@link RECORD_KINDS}, u32 × 4; 0 = does not resolve
 *  20  length of the tail, u32
 *  24  proof id, 16 bytes
 *  40  the parts, then the tail
 */
export const RECORD_KINDS = ['proof', 'certificate', 'passport', 'trust'] as const;
export const RECORD_HEADER_BYTES = 40;
const VERSION = 1;
const TAIL_LENGTH_AT = 20;
const ID_AT = 24;

export interface RecordTexts {
  proof_id: ProofId;
  /** By kind, the JSON text between head and tail; a kind that is absent does not resolve. */
  parts: Partial<Record<ArtifactKind, string>> & { proof: string };
  /** The JSON text after it, the closing brace included. */
  tail: string;
}

export function encodeRecord({ proof_id, parts, tail }: RecordTexts): Uint8Array {
  const texts = [...RECORD_KINDS.map((kind) => parts[kind] ?? ''), tail];
  const whole = texts.join('');
  const body = utf8(whole);
  // Nearly always ASCII, and then encoded all at once: this is on the publisher's hot path.
  const ascii = body.length === whole.length;
  const record = new Uint8Array(RECORD_HEADER_BYTES + body.length);
  const view = new DataView(record.buffer);
  record[0] = VERSION;
  texts.forEach((text, i) => {
    view.setUint32(4 + 4 * i, ascii ? text.length : utf8(text).length, true);
  });
  record.set(fromHex(proof_id), ID_AT);
  record.set(body, RECORD_HEADER_BYTES);
  return record;
}

/** The bytes of one kind's response after the head, or null when that kind does not resolve. */
export interface RecordBody {
  part: Uint8Array;
  tail: Uint8Array;
}

/**
 * Cuts one kind out of a record whose digest was checked. `malformed_snapshot` when the lengths do
 * not add up or the record is another proof's.
 */
export function recordBody(
  record: Uint8Array,
  id: Uint8Array,
  kind: ArtifactKind,
): RecordBody | null {
  if (record.length < RECORD_HEADER_BYTES || record[0] !== VERSION) {
    throw malformed('not a snapshot record of version 1');
  }
  if (!equalBytes(record.subarray(ID_AT, ID_AT + 16), id)) {
    throw malformed("the index points to another proof's record");
  }
  const view = new DataView(record.buffer, record.byteOffset, record.length);
  let at = RECORD_HEADER_BYTES;
  let start = at;
  let end = at;
  for (let i = 0; i < RECORD_KINDS.length; i++) {
    const length = view.getUint32(4 + 4 * i, true);
    if (RECORD_KINDS[i] === kind) {
      start = at;
      end = at + length;
    }
    at += length;
  }
  if (at + view.getUint32(TAIL_LENGTH_AT, true) !== record.length) {
    throw malformed('the lengths in a snapshot record do not add up');
  }
  if (start === end) return null;
  return { part: record.subarray(start, end), tail: record.subarray(at) };
}
