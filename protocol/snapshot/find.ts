import { equalBytes } from '../bytes.js';
import type { Sha256 } from '../hash.js';
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
 * Bytes that a lookup needs from an immutable file under `lookup/segments/`. Lookups are written as
 * generators that yield what they want read, so that one implementation serves a local disk
 * (synchronously), an HTTP origin (asynchronously) and tests, and this folder does no I/O.
 */
export interface SegmentRead {
  /** The file's name: the SHA-256 of its content, in hex. */
  segment: string;
  /** The whole file's length. */
  bytes: number;
  offset: number;
  length: number;
}

export type Lookup<T> = Generator<SegmentRead, T, Uint8Array>;

/** A part that is being served: its resident region and a small cache of its file table. */
export interface LoadedPart {
  segment: string;
  part: IndexPart;
  /** Blocks of the file table that were read and checked; bounded by {@link CACHED_FILE_BLOCKS}. */
  fileBlocks: Map<number, Uint8Array>;
}

const CACHED_FILE_BLOCKS = 64;

export function loadedPart(segment: string, part: IndexPart): LoadedPart {
  return { segment, part, fileBlocks: new Map() };
}

/** Where a record is and which proof it belongs to. */
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
 * The newest row for an id (16 bytes), or null when no part has one. Every part whose range may
 * hold the id is searched, newest first: ids are nearly, not exactly, in log order, and a newer
 * part shadows what an older one says of the same proof. `parts` are in the manifest's order,
 * oldest first.
 */
export function* findPlace(
  sha256: Sha256,
  parts: readonly LoadedPart[],
  id: Uint8Array,
): Lookup<Place | null> {
  const prefix = new DataView(id.buffer, id.byteOffset, 8);
  const high = prefix.getUint32(0);
  const low = prefix.getUint32(4);
  for (let i = parts.length - 1; i >= 0; i--) {
    const loaded = parts[i]!;
    const first = firstNotBelow(loaded.part, high, low);
    if (!prefixIs(loaded.part, first, high, low)) continue;
    const place = yield* findInRun(sha256, loaded, first, high, low, id.subarray(8));
    if (place !== null) return place;
  }
  return null;
}

/** The record at a place, checked against the digest in its row. */
export function* readRecord(sha256: Sha256, place: Place): Lookup<Uint8Array> {
  const { segment, segmentBytes, offset, length } = place;
  if (offset + length > segmentBytes) throw malformed('a row points past the end of its file');
  const record = yield { segment, bytes: segmentBytes, offset, length };
  if (!equalBytes(sha256(record).subarray(0, RECORD_DIGEST_BYTES), place.digest)) {
    throw malformed('a record is not the one that its row pins');
  }
  return record;
}

/** Runs a lookup with a reader that may answer at once or later; no promise when it never waits. */
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

/** Ids that share their first half stand side by side; usually there is just one. */
function* findInRun(
  sha256: Sha256,
  loaded: LoadedPart,
  first: number,
  high: number,
  low: number,
  rest: Uint8Array,
): Lookup<Place | null> {
  let block = new Uint8Array(0) as Uint8Array;
  let blockNumber = -1;
  for (let i = first; prefixIs(loaded.part, i, high, low); i++) {
    if (Math.floor(i / BLOCK) !== blockNumber) {
      blockNumber = Math.floor(i / BLOCK);
      block = yield* readBlock(sha256, loaded, blockNumber, 'rows');
    }
    const at = (i % BLOCK) * ROW_BYTES;
    if (!equalBytes(block.subarray(at, at + 8), rest)) continue;
    const row = decodeRow(block.subarray(at, at + ROW_BYTES));
    const file = yield* readFileLine(sha256, loaded, row.fileNumber);
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
  return null;
}

function* readFileLine(
  sha256: Sha256,
  loaded: LoadedPart,
  number: number,
): Lookup<{ name: string; bytes: number }> {
  if (number >= loaded.part.layout.files) throw malformed('a row names a file that is not listed');
  const blockNumber = Math.floor(number / BLOCK);
  let block = loaded.fileBlocks.get(blockNumber);
  if (block === undefined) {
    block = yield* readBlock(sha256, loaded, blockNumber, 'files');
    if (loaded.fileBlocks.size >= CACHED_FILE_BLOCKS) loaded.fileBlocks.clear();
    loaded.fileBlocks.set(blockNumber, block);
  }
  const at = (number % BLOCK) * FILE_BYTES;
  return decodeFileLine(block.subarray(at, at + FILE_BYTES));
}

function* readBlock(
  sha256: Sha256,
  { segment, part }: LoadedPart,
  number: number,
  table: 'rows' | 'files',
): Lookup<Uint8Array> {
  const { layout } = part;
  const [start, lines, lineBytes, digests] =
    table === 'rows'
      ? [layout.residentBytes, layout.entries, ROW_BYTES, part.rowDigests]
      : [layout.filesAt, layout.files, FILE_BYTES, part.fileDigests];
  const block = yield {
    segment,
    bytes: layout.totalBytes,
    offset: start + number * BLOCK * lineBytes,
    length: Math.min(BLOCK, lines - number * BLOCK) * lineBytes,
  };
  if (!equalBytes(sha256(block), digests.subarray(32 * number, 32 * number + 32))) {
    throw malformed('a block of an index part is corrupt');
  }
  return block;
}
