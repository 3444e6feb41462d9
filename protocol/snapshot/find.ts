import { equalBytes } from '../bytes.js';
import type { Sha256 } from '../hash.js';
import { CheckedBlocks } from './checked-blocks.js';
import {
  BLOCK,
  decodeFileLine,
  decodeRow,
  FILE_BYTES,
  RECORD_DIGEST_BYTES,
  ROW_BYTES,
  type IndexPart,
} from './index-part.js';
import { malformed } from './malformed.js';

/**
 * A read from an immutable file under `lookup/segments/`. Lookups are generators that yield their
 * reads, so that one implementation serves a local disk (synchronously), an HTTP origin
 * (asynchronously) and tests, and this folder does no I/O.
 */
export interface SegmentRead {
  /** The file name: SHA-256 of the content, in hex. */
  segment: string;
  /** Length of the file. */
  bytes: number;
  offset: number;
  length: number;
}

export type Lookup<T> = Generator<SegmentRead, T, Uint8Array>;

/** A loaded index segment: its resident region, and the blocks read and verified so far. */
export interface LoadedPart {
  segment: string;
  part: IndexPart;
  rows: CheckedBlocks;
  /** Cached lines of the file table by their number, at most {@link CACHED_FILES}. */
  files: Map<number, FileLine>;
}

/** A bodies file and its length. */
interface FileLine {
  name: string;
  bytes: number;
}

const CACHED_FILES = 1024;

export function loadedPart(segment: string, part: IndexPart): LoadedPart {
  return { segment, part, rows: new CheckedBlocks(part.layout.entries), files: new Map() };
}

/** Location of a record, with the position of its proof in the log. */
export interface Place {
  segment: string;
  segmentBytes: number;
  offset: number;
  length: number;
  digest: Uint8Array;
  leafIndex: number;
  proofNumber: number;
}

/**
 * The newest row for an id (16 bytes), or null when no part has one. Searches every part whose
 * range may contain the id, newest first: ids are nearly, not exactly, in log order, and a newer
 * part replaces an older part's row for the same id. `parts` are in the manifest's order, oldest
 * first.
 *
 * It is one generator, because each nested generator would cost as much as a search.
 */
export function* findPlace(
  sha256: Sha256,
  parts: readonly LoadedPart[],
  id: Uint8Array,
): Lookup<Place | null> {
  const high = uint32At(id, 0);
  const low = uint32At(id, 4);
  for (let p = parts.length - 1; p >= 0; p--) {
    const loaded = parts[p]!;
    const { part, rows } = loaded;
    // Skips nearly all parts but one, because ids are nearly in log order.
    if (!isWithin(part, high, low)) continue;
    // Ids that share their first half are adjacent; usually there is just one.
    for (let i = firstNotBelow(part, high, low); prefixIs(part, i, high, low); i++) {
      const number = Math.floor(i / BLOCK);
      let start = rows.find(number);
      if (start < 0) {
        const block = yield blockRead(loaded, number, 'rows');
        start = rows.put(number, checkedBlock(sha256, part, block, number, 'rows'));
      }
      const at = start + (i % BLOCK) * ROW_BYTES;
      if (!hasSecondHalf(rows.memory, at, id)) continue;
      // Copies the row: its block may be evicted while the record is read.
      const row = decodeRow(rows.memory.slice(at, at + ROW_BYTES));
      if (row.fileNumber >= part.layout.files) {
        throw malformed('a row names a file that is not listed');
      }
      let file = loaded.files.get(row.fileNumber);
      if (file === undefined) {
        const lines = Math.floor(row.fileNumber / BLOCK);
        const block = yield blockRead(loaded, lines, 'files');
        file = keepFileLines(
          loaded,
          checkedBlock(sha256, part, block, lines, 'files'),
          row.fileNumber,
        );
      }
      return {
        segment: file.name,
        segmentBytes: file.bytes,
        offset: row.offset,
        length: row.length,
        digest: row.digest,
        leafIndex: row.leafIndex,
        proofNumber: row.proofNumber,
      };
    }
  }
  return null;
}

/** The read for the record at a place. */
export function recordRead({ segment, segmentBytes, offset, length }: Place): SegmentRead {
  if (offset + length > segmentBytes) throw malformed('a row points past the end of its file');
  return { segment, bytes: segmentBytes, offset, length };
}

/** The record at a place, verified against the digest in its row. */
export function checkedRecord(sha256: Sha256, place: Place, record: Uint8Array): Uint8Array {
  const digest = sha256(record);
  for (let i = 0; i < RECORD_DIGEST_BYTES; i++) {
    if (digest[i] !== place.digest[i]) {
      throw malformed('the digest of a record differs from the one in its index row');
    }
  }
  return record;
}

/** Reads the record at a place and verifies it. */
export function* readRecord(sha256: Sha256, place: Place): Lookup<Uint8Array> {
  return checkedRecord(sha256, place, yield recordRead(place));
}

/**
 * Runs a lookup with a synchronous or asynchronous reader; returns a promise only if a read was
 * asynchronous.
 */
export function runLookup<T>(
  lookup: Lookup<T>,
  read: (wanted: SegmentRead) => Uint8Array | Promise<Uint8Array>,
): T | Promise<T> {
  let step = lookup.next();
  while (step.done !== true) {
    const bytes = read(step.value);
    if (bytes instanceof Promise) return finishLater(lookup, bytes, read);
    step = lookup.next(bytes);
  }
  return step.value;
}

async function finishLater<T>(
  lookup: Lookup<T>,
  pending: Promise<Uint8Array>,
  read: (wanted: SegmentRead) => Uint8Array | Promise<Uint8Array>,
): Promise<T> {
  let step = lookup.next(await pending);
  while (step.done !== true) step = lookup.next(await read(step.value));
  return step.value;
}

/** Whether the first half of an id is within the id range of a part, which is never empty. */
function isWithin({ high, low }: IndexPart, wantedHigh: number, wantedLow: number): boolean {
  const last = high.length - 1;
  if (wantedHigh < high[0]! || wantedHigh > high[last]!) return false;
  if (wantedHigh === high[0] && wantedLow < low[0]!) return false;
  return wantedHigh !== high[last] || wantedLow <= low[last]!;
}

function firstNotBelow(part: IndexPart, high: number, low: number): number {
  let from = 0;
  let to = part.high.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    const at = part.high[middle]!;
    if (at < high || (at === high && part.low[middle]! < low)) from = middle + 1;
    else to = middle;
  }
  return from;
}

function prefixIs(part: IndexPart, i: number, high: number, low: number): boolean {
  return i < part.high.length && part.high[i] === high && part.low[i] === low;
}

/** Whether the row at `at` has the second half of the id. */
function hasSecondHalf(rows: Uint8Array, at: number, id: Uint8Array): boolean {
  for (let i = 0; i < 8; i++) if (rows[at + i] !== id[8 + i]) return false;
  return true;
}

function uint32At(bytes: Uint8Array, at: number): number {
  return bytes[at]! * 0x1000000 + ((bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!);
}

/** Caches all lines of a checked block of the file table; returns the line `wanted`. */
function keepFileLines(loaded: LoadedPart, block: Uint8Array, wanted: number): FileLine {
  if (loaded.files.size + BLOCK > CACHED_FILES) loaded.files.clear();
  const first = wanted - (wanted % BLOCK);
  for (let at = 0; at < block.length; at += FILE_BYTES) {
    const line = decodeFileLine(block.subarray(at, at + FILE_BYTES));
    loaded.files.set(first + at / FILE_BYTES, line);
  }
  return loaded.files.get(wanted)!;
}

type Table = 'rows' | 'files';

/** The read for a block of a table. */
function blockRead({ segment, part }: LoadedPart, number: number, table: Table): SegmentRead {
  const { layout } = part;
  const [start, lines, lineBytes] =
    table === 'rows'
      ? [layout.residentBytes, layout.entries, ROW_BYTES]
      : [layout.filesAt, layout.files, FILE_BYTES];
  return {
    segment,
    bytes: layout.totalBytes,
    offset: start + number * BLOCK * lineBytes,
    length: Math.min(BLOCK, lines - number * BLOCK) * lineBytes,
  };
}

/** Returns the block that was read, or throws when its digest differs. */
function checkedBlock(
  sha256: Sha256,
  part: IndexPart,
  block: Uint8Array,
  number: number,
  table: Table,
): Uint8Array {
  const digests = table === 'rows' ? part.rowDigests : part.fileDigests;
  if (!equalBytes(sha256(block), digests.subarray(32 * number, 32 * number + 32))) {
    throw malformed('a block of an index part is corrupt');
  }
  return block;
}
