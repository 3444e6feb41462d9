import { asciiInto, concat, equalBytes, fromHex, utf8 } from '../bytes.js';
import type { ArtifactKind } from '../status.js';
import { malformed } from './malformed.js';

/**
 * One proof or package in a bodies file, rendered once: the JSON text for each artifact kind, and
 * the text that all kinds share. A response body is head ‖ part ‖ tail (see head.ts), so a lookup
 * needs one contiguous read and no JSON.
 *
 * Bytes, integers little-endian:
 *    0  version, 1 or 2       1  zero × 3
 *    4  length of the parts in the order of {@link RECORD_KINDS}, u32 × 4; 0 = does not resolve
 *   20  length of the tail, u32
 *   24  id of the proof or package, 16 bytes
 *   40  version 2 only: length of the history, u32
 *   then the parts, the tail, and in version 2 the history
 *
 * The history is a JSON array of events, oldest first. A record has one (version 2) only if the
 * proof has other events than accepted, appended and verified, which its body implies.
 */
export const RECORD_KINDS = ['proof', 'certificate', 'passport', 'trust'] as const;
export const RECORD_HEADER_BYTES = 40;
const HISTORY_HEADER_BYTES = 44;
const PLAIN = 1;
const WITH_HISTORY = 2;
const LENGTHS_AT = 4;
const TAIL_LENGTH_AT = 20;
const ID_AT = 24;
const HISTORY_LENGTH_AT = 40;

export interface RecordTexts {
  /** Id of the proof or package: 16 bytes in hex. */
  id: string;
  /** JSON text between head and tail, by kind; an absent kind does not resolve. */
  parts: Partial<Record<ArtifactKind, string>>;
  /** JSON text after the part, with the closing brace. */
  tail: string;
  /** JSON text of the events; absent when the body implies all of them. */
  history?: string;
}

export function encodeRecord({ id, parts, tail, history }: RecordTexts): Uint8Array {
  const texts = [...RECORD_KINDS.map((kind) => parts[kind] ?? ''), tail];
  const whole = texts.join('') + (history ?? '');
  const headerBytes = history === undefined ? RECORD_HEADER_BYTES : HISTORY_HEADER_BYTES;
  // Assumes ASCII, the usual case, which encodes in place: this is the publisher's hot path.
  let record = room(headerBytes + whole.length);
  const ascii = asciiInto(whole, record.subarray(headerBytes));
  if (!ascii) record = concat(new Uint8Array(headerBytes), utf8(whole));
  const lengthOf = (text: string): number => (ascii ? text.length : utf8(text).length);
  const view = new DataView(record.buffer, record.byteOffset, headerBytes);
  record[0] = history === undefined ? PLAIN : WITH_HISTORY;
  texts.forEach((text, i) => view.setUint32(LENGTHS_AT + 4 * i, lengthOf(text), true));
  record.set(fromHex(id), ID_AT);
  if (history !== undefined) view.setUint32(HISTORY_LENGTH_AT, lengthOf(history), true);
  return record;
}

const SLAB_BYTES = 1 << 18;
let slab = new Uint8Array(0);
let taken = 0;

/** Zeroed bytes from a shared buffer: an array per record costs as much as its text. */
function room(bytes: number): Uint8Array {
  if (taken + bytes > slab.length) {
    slab = new Uint8Array(Math.max(SLAB_BYTES, bytes));
    taken = 0;
  }
  return slab.subarray(taken, (taken += bytes));
}

/** The response bytes after the head, or null when the kind does not resolve. */
export interface RecordBody {
  part: Uint8Array;
  tail: Uint8Array;
}

/**
 * Extracts one kind from a record whose digest was checked. Throws `malformed_snapshot` for
 * inconsistent lengths or another id.
 */
export function recordBody(
  record: Uint8Array,
  id: Uint8Array,
  kind: ArtifactKind,
): RecordBody | null {
  const view = openRecord(record, id);
  const index = RECORD_KINDS.indexOf(kind);
  const length = view.getUint32(LENGTHS_AT + 4 * index, true);
  if (length === 0) return null;
  let start = headerBytesOf(record);
  for (let i = 0; i < index; i++) start += view.getUint32(LENGTHS_AT + 4 * i, true);
  const end = record.length - historyBytesOf(record, view);
  return {
    part: record.subarray(start, start + length),
    tail: record.subarray(end - view.getUint32(TAIL_LENGTH_AT, true), end),
  };
}

/** The JSON text of a record's events; null when its body implies all of them. */
export function recordHistory(record: Uint8Array, id: Uint8Array): Uint8Array | null {
  const view = openRecord(record, id);
  if (record[0] === PLAIN) return null;
  return record.subarray(record.length - historyBytesOf(record, view));
}

/** Checks a record and returns a view of it, with no further allocation on this hot path. */
function openRecord(record: Uint8Array, id: Uint8Array): DataView {
  const headerBytes = headerBytesOf(record);
  if (record.length < headerBytes || (record[0] !== PLAIN && record[0] !== WITH_HISTORY)) {
    throw malformed('not a snapshot record of version 1 or 2');
  }
  if (!equalBytes(record.subarray(ID_AT, ID_AT + 16), id)) {
    throw malformed('the index points to the record of another id');
  }
  const view = new DataView(record.buffer, record.byteOffset, record.length);
  let end = headerBytes + historyBytesOf(record, view);
  for (let at = LENGTHS_AT; at <= TAIL_LENGTH_AT; at += 4) end += view.getUint32(at, true);
  if (end !== record.length) throw malformed('the lengths in a snapshot record are inconsistent');
  return view;
}

function headerBytesOf(record: Uint8Array): number {
  return record[0] === WITH_HISTORY ? HISTORY_HEADER_BYTES : RECORD_HEADER_BYTES;
}

function historyBytesOf(record: Uint8Array, view: DataView): number {
  return record[0] === WITH_HISTORY ? view.getUint32(HISTORY_LENGTH_AT, true) : 0;
}
