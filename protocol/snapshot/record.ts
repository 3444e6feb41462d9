import { concat, equalBytes, fromHex, utf8 } from '../bytes.js';
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
  /** `"artifact":{…},"verification":{…},` by kind; a kind that is absent does not resolve. */
  parts: Partial<Record<ArtifactKind, string>> & { proof: string };
  /** `"trust_chain":{…},…}`: everything after the part, the closing brace included. */
  tail: string;
}

export function encodeRecord(texts: RecordTexts): Uint8Array {
  const parts = RECORD_KINDS.map((kind) => utf8(texts.parts[kind] ?? ''));
  const tail = utf8(texts.tail);
  const header = new Uint8Array(RECORD_HEADER_BYTES);
  const view = new DataView(header.buffer);
  header[0] = VERSION;
  parts.forEach((part, i) => view.setUint32(4 + 4 * i, part.length, true));
  view.setUint32(TAIL_LENGTH_AT, tail.length, true);
  header.set(fromHex(texts.proof_id), ID_AT);
  return concat(header, ...parts, tail);
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
