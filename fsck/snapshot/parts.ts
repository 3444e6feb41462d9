import { compareBytes, fromHex, toHex, equalBytes } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import {
  decodeFileLine,
  decodeIndexPart,
  decodeRow,
  FILE_BYTES,
  ROW_BYTES,
  rowId,
  type IndexRows,
  RECORD_DIGEST_BYTES,
} from '#protocol/snapshot/index-part';
import { segmentPath, type IndexPartPin } from '#protocol/snapshot/manifest';
import { nativeSha256 } from '#runtime/crypto/node';
import { ByteCache } from '#runtime/process/byte-cache';
import type { SnapshotContext, PublishedContext } from './source.js';

/** The location of a record in the index. */
export interface IndexedRow {
  id: string;
  /** The leaf index of a proof; the change number of a token or package. */
  leafIndex: number;
  proofNumber: number;
  file: { name: string; bytes: number };
  offset: number;
  length: number;
  digest: Uint8Array;
  pin: IndexPartPin;
}

export type Looked =
  { state: 'found'; row: IndexedRow } | { state: 'absent' } | { state: 'unknown' };

const CACHED_BYTES = 192 * 1024 * 1024;

/** The index segments of a manifest; each is checked completely on first use. */
export class Parts {
  private readonly cache = new ByteCache<IndexRows>(CACHED_BYTES);
  private readonly damaged = new Set<string>();

  constructor(
    private readonly ctx: Pick<SnapshotContext, 'files' | 'findings'>,
    readonly pins: readonly IndexPartPin[],
  ) {}

  ofKind(kind: string): IndexPartPin[] {
    return this.pins.filter((pin) => pin.kind === kind);
  }

  /** The rows of a segment; null when missing or damaged, which is reported once. */
  async rows(pin: IndexPartPin): Promise<IndexRows | null> {
    const known = this.cache.get(pin.sha256);
    if (known !== undefined) return known;
    if (this.damaged.has(pin.sha256)) return null;
    const path = segmentPath(pin.sha256);
    const bytes = await this.ctx.files.read(path);
    const fault = bytes === null ? 'missing' : faultOf(bytes, pin);
    if (bytes === null || fault !== null) {
      this.damaged.add(pin.sha256);
      if (bytes === null) {
        this.ctx.findings.add('segment_missing', path, `index part of ${pin.entries} rows`);
      } else this.ctx.findings.add('part_altered', path, fault ?? '');
      return null;
    }
    const rows = decodeIndexPart(nativeSha256, bytes, pin);
    this.cache.put(pin.sha256, rows, bytes.length + 8 * pin.entries);
    return rows;
  }

  /**
   * The newest row of an id.
   *
   * @param newerThan search only later segments
   */
  async find(kind: string, id: string, newerThan?: IndexPartPin): Promise<Looked> {
    const pins = this.ofKind(kind);
    const oldest = newerThan === undefined ? 0 : pins.indexOf(newerThan) + 1;
    let state: 'absent' | 'unknown' = 'absent';
    for (let i = pins.length - 1; i >= oldest; i--) {
      const pin = pins[i]!;
      if (id < pin.least || id > pin.greatest) continue;
      const rows = await this.rows(pin);
      if (rows === null) state = 'unknown';
      const at = rows === null ? null : placeOf(rows, id);
      if (rows !== null && at !== null) return { state: 'found', row: rowAt(rows, at, pin) };
    }
    return { state };
  }
}

export function rowAt(rows: IndexRows, i: number, pin: IndexPartPin): IndexedRow {
  const row = decodeRow(rows.rows.subarray(i * ROW_BYTES, (i + 1) * ROW_BYTES));
  const at = row.fileNumber * FILE_BYTES;
  const line = rows.files.subarray(at, at + FILE_BYTES);
  const file = line.length === FILE_BYTES ? decodeFileLine(line) : { name: '', bytes: 0 };
  return { ...row, id: rowId(rows, i), file, pin };
}

function placeOf(rows: IndexRows, id: string): number | null {
  const wanted = fromHex(id);
  const view = new DataView(wanted.buffer, wanted.byteOffset, 16);
  const [high, low] = [view.getUint32(0), view.getUint32(4)];
  let from = 0;
  let to = rows.high.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    const order =
      rows.high[middle]! - high ||
      rows.low[middle]! - low ||
      compareBytes(
        rows.rows.subarray(middle * ROW_BYTES, middle * ROW_BYTES + 8),
        wanted.subarray(8),
      );
    if (order === 0) return middle;
    if (order < 0) from = middle + 1;
    else to = middle;
  }
  return null;
}

/** The fault in a segment's digests, order or manifest entry; null without a fault. */
function faultOf(bytes: Uint8Array, pin: IndexPartPin): string | null {
  if (toHex(nativeSha256(bytes)) !== pin.sha256) {
    return `SHA-256 ${pin.sha256} and ${pin.bytes} bytes, found ${bytes.length}`;
  }
  let rows: IndexRows;
  try {
    rows = decodeIndexPart(nativeSha256, bytes, pin);
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    return error.message;
  }
  const entries = rows.high.length;
  let [first, last] = [Infinity, 0];
  for (let i = 0; i < entries; i++) {
    const { id, leafIndex, file, offset, length } = rowAt(rows, i, pin);
    if (i > 0 && rowId(rows, i - 1) >= id) return `ids in ascending order, unlike row ${i}`;
    if (offset + length > file.bytes) return `row ${i} within a file of its table`;
    first = Math.min(first, leafIndex);
    last = Math.max(last, leafIndex);
  }
  if (rowId(rows, 0) !== pin.least || rowId(rows, entries - 1) !== pin.greatest) {
    return `ids from ${pin.least} to ${pin.greatest}`;
  }
  if (first !== pin.first_leaf || last !== pin.last_leaf) {
    return `leaves from ${pin.first_leaf} to ${pin.last_leaf}`;
  }
  return null;
}

const CACHED_BODY_BYTES = 96 * 1024 * 1024;

/** The body files; each is checked against its name on first use. */
export class Bodies {
  private readonly cache = new ByteCache<{ bytes: Uint8Array; isRight: boolean }>(
    CACHED_BODY_BYTES,
  );
  private readonly reported = new Set<string>();

  constructor(private readonly ctx: Pick<SnapshotContext, 'files' | 'findings'>) {}

  /** Reads and checks a file; null when missing. Reports a fault once. */
  async file(
    name: string,
    length: number,
  ): Promise<{ bytes: Uint8Array; isRight: boolean } | null> {
    const known = this.cache.get(name);
    if (known !== undefined) return known;
    const path = segmentPath(name);
    const bytes = await this.ctx.files.read(path);
    if (bytes === null) {
      this.report(name, 'segment_missing', `a bodies file of ${length} bytes`);
      return null;
    }
    const isRight = bytes.length === length && toHex(nativeSha256(bytes)) === name;
    if (!isRight) {
      const found = `found ${bytes.length} bytes`;
      this.report(name, 'segment_altered', `${length} bytes of that SHA-256, ${found}`);
    }
    const file = { bytes, isRight };
    this.cache.put(name, file, bytes.length);
    return file;
  }

  /** The record of a row; null when unreadable, which is reported for its file or the row. */
  async record(row: IndexedRow): Promise<Uint8Array | null> {
    const { file, offset, length, digest } = row;
    const found = await this.file(file.name, file.bytes);
    if (found === null) return null;
    const record = found.bytes.subarray(offset, offset + length);
    if (equalBytes(nativeSha256(record).subarray(0, RECORD_DIGEST_BYTES), digest)) return record;
    if (found.isRight) {
      const where = `${segmentPath(row.pin.sha256)} id=${row.id}`;
      const place = `${segmentPath(file.name)} at ${offset}`;
      this.ctx.findings.add('row_differs', where, `the digest of the record in ${place}`);
    }
    return null;
  }

  private report(
    name: string,
    code: 'segment_missing' | 'segment_altered',
    expected: string,
  ): void {
    if (this.reported.has(name)) return;
    this.reported.add(name);
    this.ctx.findings.add(code, segmentPath(name), expected);
  }
}

const FOLDER = 'lookup/segments';
/** Replaced files are kept for this long, because readers may use an older manifest. */
const KEPT_MS = 60 * 60 * 1000;

/** Names are remembered by their first 52 bits, so that each file takes eight bytes. */
const keyOf = (name: string): number => parseInt(name.slice(0, 13), 16);

/** Counts files that the manifest does not refer to, recent ones separately. */
export async function checkOrphans(ctx: PublishedContext, parts: Parts): Promise<void> {
  const { files, findings, opened } = ctx;
  const listed = files.list(FOLDER);
  if (listed === null) {
    findings.skip(`files that nothing refers to: ${files.where} does not list`);
    return;
  }
  const referred = new Set([keyOf(opened.manifest.keys.sha256)]);
  for (const pin of parts.pins) {
    referred.add(keyOf(pin.sha256));
    const rows = await parts.rows(pin);
    if (rows === null) {
      findings.unchecked('files that nothing refers to: an index part is damaged');
      return;
    }
    for (let at = 0; at < rows.files.length; at += FILE_BYTES) {
      referred.add(keyOf(decodeFileLine(rows.files.subarray(at, at + FILE_BYTES)).name));
    }
  }
  let [young, old] = [0, 0];
  for await (const { name, writtenAt } of listed) {
    if (/^[0-9a-f]{64}$/.test(name) && referred.has(keyOf(name))) continue;
    if (ctx.now() - writtenAt < KEPT_MS) young += 1;
    else old += 1;
  }
  if (young > 0)
    findings.add(
      'orphans_young',
      FOLDER,
      `files that the manifest leads to, found ${young} others of the last hour`,
    );
  if (old > 0)
    findings.add('orphans', FOLDER, `files that the manifest leads to, found ${old} older others`);
}
