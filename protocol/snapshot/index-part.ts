import { compareBytes, concat, equalBytes, fromHex, toHex } from '../bytes.js';
import type { Sha256 } from '../hash.js';
import { malformed } from './malformed.js';

/**
 * An index part: ids in order, each with the place and digest of its record. Integers
 * little-endian, ids big-endian (so that they sort like their hex form).
 *
 *   header           32   "svcidx01", entries u32, files u32, zero × 16
 *   id bytes 0–3     4 × entries     as u32
 *   id bytes 4–7     4 × entries     as u32
 *   row digests      32 × ⌈entries / 16⌉     SHA-256 of each block of rows
 *   file digests     32 × ⌈files / 16⌉       SHA-256 of each block of the file table
 *   ── resident up to here, pinned by one digest in the manifest; the rest is read by block ──
 *   rows             48 × entries
 *   file table       40 × files      name of a bodies file (its SHA-256), its length as u64
 *
 * A row: id bytes 8–15 · number in the file table u32 · offset u32 · length u32 · leaf index u48 ·
 * proof number u48 (how many proofs precede it in the log) · first 16 bytes of the record's SHA-256.
 */
export const ROW_BYTES = 48;
export const FILE_BYTES = 40;
/** Rows, or file table lines, under one digest: the unit that a lookup reads and hashes. */
export const BLOCK = 16;
export const PART_HEADER_BYTES = 32;
const MAGIC = fromHex('7376636964783031'); // "svcidx01"

/** Offsets inside a row. */
const FILE_AT = 8;
const OFFSET_AT = 12;
const LENGTH_AT = 16;
const LEAF_AT = 20;
const NUMBER_AT = 26;
const DIGEST_AT = 32;
export const RECORD_DIGEST_BYTES = 16;

/** One decoded row. */
export interface IndexRow {
  /** The proof id. */
  id: string;
  /** The bodies file, by its SHA-256 in hex, and its length. */
  file: string;
  fileBytes: number;
  offset: number;
  length: number;
  leafIndex: number;
  /** The number of proofs before this one in the log, which decides whether the proof is recent. */
  proofNumber: number;
  /** {@link RECORD_DIGEST_BYTES} bytes. */
  digest: Uint8Array;
}

/** The rows of a part as columns, sorted by id, each id once; used for merging and writing. */
export interface IndexRows {
  high: Uint32Array;
  low: Uint32Array;
  rows: Uint8Array;
  files: Uint8Array;
}

/** Sizes of a part that follow from its counts. */
export interface PartLayout {
  entries: number;
  files: number;
  residentBytes: number;
  filesAt: number;
  totalBytes: number;
}

export function partLayout(entries: number, files: number): PartLayout {
  const digests = Math.ceil(entries / BLOCK) + Math.ceil(files / BLOCK);
  const residentBytes = PART_HEADER_BYTES + 8 * entries + 32 * digests;
  const filesAt = residentBytes + ROW_BYTES * entries;
  return { entries, files, residentBytes, filesAt, totalBytes: filesAt + FILE_BYTES * files };
}

/** Sorts rows into columns. Throws when two rows have the same id. */
export function packRows(unsorted: readonly IndexRow[]): IndexRows {
  const sorted = [...unsorted].sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0));
  const columns = emptyRows(sorted.length);
  const files = new Map<string, { number: number; bytes: number }>();
  sorted.forEach((row, i) => {
    if (sorted[i - 1]?.id === row.id) throw malformed(`${row.id} is indexed twice`);
    let file = files.get(row.file);
    if (file === undefined) {
      file = { number: files.size, bytes: row.fileBytes };
      files.set(row.file, file);
    }
    const id = fromHex(row.id);
    const prefix = new DataView(id.buffer);
    columns.high[i] = prefix.getUint32(0);
    columns.low[i] = prefix.getUint32(4);
    const bytes = columns.rows.subarray(i * ROW_BYTES, (i + 1) * ROW_BYTES);
    const view = new DataView(bytes.buffer, bytes.byteOffset, ROW_BYTES);
    bytes.set(id.subarray(8), 0);
    view.setUint32(FILE_AT, file.number, true);
    view.setUint32(OFFSET_AT, row.offset, true);
    view.setUint32(LENGTH_AT, row.length, true);
    setUint48(view, LEAF_AT, row.leafIndex);
    setUint48(view, NUMBER_AT, row.proofNumber);
    bytes.set(row.digest, DIGEST_AT);
  });
  columns.files = fileTable([...files].map(([name, file]) => [fromHex(name), file.bytes]));
  return columns;
}

export function emptyRows(entries: number): IndexRows {
  return {
    high: new Uint32Array(entries),
    low: new Uint32Array(entries),
    rows: new Uint8Array(ROW_BYTES * entries),
    files: new Uint8Array(0),
  };
}

/** Lines of a file table: name (32 bytes) and length. */
export function fileTable(files: readonly (readonly [Uint8Array, number])[]): Uint8Array {
  const table = new Uint8Array(FILE_BYTES * files.length);
  const view = new DataView(table.buffer);
  files.forEach(([name, bytes], i) => {
    table.set(name, i * FILE_BYTES);
    view.setBigUint64(i * FILE_BYTES + 32, BigInt(bytes), true);
  });
  return table;
}

export function decodeFileLine(line: Uint8Array): { name: string; bytes: number } {
  const view = new DataView(line.buffer, line.byteOffset, FILE_BYTES);
  return { name: toHex(line.subarray(0, 32)), bytes: Number(view.getBigUint64(32, true)) };
}

/** Number of the row's bodies file in the file table of its part. */
export function rowFileNumber(rows: Uint8Array, i: number): number {
  return viewOf(rows).getUint32(i * ROW_BYTES + FILE_AT, true);
}

export function setRowFileNumber(rows: Uint8Array, i: number, number: number): void {
  viewOf(rows).setUint32(i * ROW_BYTES + FILE_AT, number, true);
}

/** Decodes a row without its id, whose first half is in the prefix columns. */
export function decodeRow(row: Uint8Array): Omit<IndexRow, 'id' | 'file' | 'fileBytes'> & {
  fileNumber: number;
} {
  const view = new DataView(row.buffer, row.byteOffset, ROW_BYTES);
  return {
    fileNumber: view.getUint32(FILE_AT, true),
    offset: view.getUint32(OFFSET_AT, true),
    length: view.getUint32(LENGTH_AT, true),
    leafIndex: getUint48(view, LEAF_AT),
    proofNumber: getUint48(view, NUMBER_AT),
    digest: row.subarray(DIGEST_AT, DIGEST_AT + RECORD_DIGEST_BYTES),
  };
}

/** The id of row `i`, as hex. */
export function rowId(rows: IndexRows, i: number): string {
  const prefix = new Uint8Array(8);
  const view = new DataView(prefix.buffer);
  view.setUint32(0, rows.high[i]!);
  view.setUint32(4, rows.low[i]!);
  return toHex(prefix) + toHex(rows.rows.subarray(i * ROW_BYTES, i * ROW_BYTES + 8));
}

/** The least and the greatest leaf index of the rows, which must not be empty. */
export function leafRange(rows: IndexRows): { first: number; last: number } {
  const view = viewOf(rows.rows);
  let first = Infinity;
  let last = 0;
  for (let at = LEAF_AT; at < rows.rows.length; at += ROW_BYTES) {
    const leaf = getUint48(view, at);
    first = Math.min(first, leaf);
    last = Math.max(last, leaf);
  }
  return { first, last };
}

/** Throws `malformed_snapshot` unless the bytes are the pinned file table. */
export function requireFileTable(sha256: Sha256, part: IndexPart, table: Uint8Array): void {
  if (!equalBytes(blockDigests(sha256, table, FILE_BYTES * BLOCK), part.fileDigests)) {
    throw malformed('the file table of an index part is corrupt');
  }
}

/** Compares the id of row `i` of `a` with that of row `j` of `b`: negative, zero or positive. */
export function compareRowIds(a: IndexRows, i: number, b: IndexRows, j: number): number {
  return (
    a.high[i]! - b.high[j]! ||
    a.low[i]! - b.low[j]! ||
    compareBytes(
      a.rows.subarray(i * ROW_BYTES, i * ROW_BYTES + 8),
      b.rows.subarray(j * ROW_BYTES, j * ROW_BYTES + 8),
    )
  );
}

/** Encodes a part. Returns its bytes, and how many of them readers keep in memory. */
export function encodeIndexPart(
  sha256: Sha256,
  columns: IndexRows,
): { bytes: Uint8Array; residentBytes: number } {
  const layout = partLayout(columns.high.length, columns.files.length / FILE_BYTES);
  const header = new Uint8Array(PART_HEADER_BYTES);
  header.set(MAGIC);
  const counts = new DataView(header.buffer);
  counts.setUint32(8, layout.entries, true);
  counts.setUint32(12, layout.files, true);
  const bytes = concat(
    header,
    littleEndian(columns.high),
    littleEndian(columns.low),
    blockDigests(sha256, columns.rows, ROW_BYTES * BLOCK),
    blockDigests(sha256, columns.files, FILE_BYTES * BLOCK),
    columns.rows,
    columns.files,
  );
  return { bytes, residentBytes: layout.residentBytes };
}

/** The resident region of a part, checked against the manifest's pin. */
export interface IndexPart {
  layout: PartLayout;
  high: Uint32Array;
  low: Uint32Array;
  rowDigests: Uint8Array;
  fileDigests: Uint8Array;
}

/** The members of a manifest's pin that are needed to read the segment. */
export interface PartPin {
  bytes: number;
  resident_bytes: number;
  resident_sha256: string;
  entries: number;
  files: number;
  least: string;
  greatest: string;
}

/**
 * Reads the resident region. Besides the digest it checks the order of the ids and the range that
 * the manifest states: if either were wrong, lookups would return "not found" for a published
 * proof.
 */
export function openIndexPart(sha256: Sha256, resident: Uint8Array, pin: PartPin): IndexPart {
  const layout = partLayout(pin.entries, pin.files);
  if (layout.residentBytes !== pin.resident_bytes || layout.totalBytes !== pin.bytes) {
    throw malformed('the manifest states sizes for an index part that do not fit its counts');
  }
  if (
    resident.length !== pin.resident_bytes ||
    toHex(sha256(resident)) !== pin.resident_sha256 ||
    !equalBytes(resident.subarray(0, MAGIC.length), MAGIC)
  ) {
    throw malformed('an index part is not the one that the manifest pins');
  }
  const view = viewOf(resident);
  if (view.getUint32(8, true) !== pin.entries || view.getUint32(12, true) !== pin.files) {
    throw malformed('an index part has other counts than the manifest states');
  }
  let at = PART_HEADER_BYTES;
  const high = readUint32s(view, at, layout.entries);
  at += 4 * layout.entries;
  const low = readUint32s(view, at, layout.entries);
  at += 4 * layout.entries;
  const rowDigestBytes = 32 * Math.ceil(layout.entries / BLOCK);
  // Copied, so that the region itself can be freed.
  const rowDigests = new Uint8Array(resident.subarray(at, at + rowDigestBytes));
  const fileDigests = new Uint8Array(resident.subarray(at + rowDigestBytes));
  checkOrder(high, low, pin);
  return { layout, high, low, rowDigests, fileDigests };
}

/** Decodes every row of an index segment and verifies every block. */
export function decodeIndexPart(sha256: Sha256, bytes: Uint8Array, pin: PartPin): IndexRows {
  const part = openIndexPart(sha256, bytes.subarray(0, pin.resident_bytes), pin);
  const { layout } = part;
  if (bytes.length !== layout.totalBytes) throw malformed('an index part is cut short');
  const rows = bytes.subarray(layout.residentBytes, layout.filesAt);
  const files = bytes.subarray(layout.filesAt);
  if (
    !equalBytes(blockDigests(sha256, rows, ROW_BYTES * BLOCK), part.rowDigests) ||
    !equalBytes(blockDigests(sha256, files, FILE_BYTES * BLOCK), part.fileDigests)
  ) {
    throw malformed('a block of an index part is corrupt');
  }
  return { high: part.high, low: part.low, rows, files };
}

function checkOrder(high: Uint32Array, low: Uint32Array, pin: PartPin): void {
  for (let i = 1; i < high.length; i++) {
    if (high[i - 1]! > high[i]! || (high[i - 1] === high[i] && low[i - 1]! > low[i]!)) {
      throw malformed('the ids of an index part are not in order');
    }
  }
  const last = high.length - 1;
  if (
    !samePrefix(pin.least, high[0]!, low[0]!) ||
    !samePrefix(pin.greatest, high[last]!, low[last]!)
  ) {
    throw malformed('the manifest states another id range than an index part has');
  }
}

function samePrefix(id: string, high: number, low: number): boolean {
  return parseInt(id.slice(0, 8), 16) === high && parseInt(id.slice(8, 16), 16) === low;
}

function blockDigests(sha256: Sha256, bytes: Uint8Array, blockBytes: number): Uint8Array {
  const digests = new Uint8Array(32 * Math.ceil(bytes.length / blockBytes));
  for (let i = 0; i * blockBytes < bytes.length; i++) {
    digests.set(sha256(bytes.subarray(i * blockBytes, (i + 1) * blockBytes)), 32 * i);
  }
  return digests;
}

function littleEndian(numbers: Uint32Array): Uint8Array {
  const bytes = new Uint8Array(4 * numbers.length);
  const view = viewOf(bytes);
  for (let i = 0; i < numbers.length; i++) view.setUint32(4 * i, numbers[i]!, true);
  return bytes;
}

function readUint32s(view: DataView, at: number, count: number): Uint32Array {
  const numbers = new Uint32Array(count);
  for (let i = 0; i < count; i++) numbers[i] = view.getUint32(at + 4 * i, true);
  return numbers;
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

function setUint48(view: DataView, at: number, value: number): void {
  view.setUint32(at, value % 0x1_0000_0000, true);
  view.setUint16(at + 4, Math.floor(value / 0x1_0000_0000), true);
}

function getUint48(view: DataView, at: number): number {
  return view.getUint32(at, true) + view.getUint16(at + 4, true) * 0x1_0000_0000;
}
