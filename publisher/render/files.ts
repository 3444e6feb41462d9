import { concat, toHex } from '#protocol/bytes';
import type { Sha256 } from '#protocol/hash';
import {
  FILE_BYTES,
  type IndexRow,
  type IndexRows,
  packRows,
  RECORD_DIGEST_BYTES,
} from '#protocol/snapshot/index-part';
import { segmentPath } from '#protocol/snapshot/manifest';
import type { PublishedFile } from '../store/writer.js';

/** A rendered record for a bodies file. */
export interface RenderedRecord {
  /** Index key, 16 bytes in hex: the id of a proof or package, or half of a token's hash. */
  id: string;
  /** For a token or package, the number of its last change. */
  leafIndex: number;
  /** Number of proofs before it in the log. Recent lookups are counted by it. */
  proofNumber: number;
  bytes: Uint8Array;
}

/** A content-addressed file of records, and the index rows that point into it. */
export function bodiesFile(
  sha256: Sha256,
  records: readonly RenderedRecord[],
): { file: PublishedFile; rows: IndexRows } {
  const bytes = concat(...records.map((record) => record.bytes));
  const name = toHex(sha256(bytes));
  let offset = 0;
  const rows = records.map((record): IndexRow => {
    const row = {
      id: record.id,
      file: name,
      fileBytes: bytes.length,
      offset,
      length: record.bytes.length,
      leafIndex: record.leafIndex,
      proofNumber: record.proofNumber,
      digest: sha256(record.bytes).slice(0, RECORD_DIGEST_BYTES),
    };
    offset += record.bytes.length;
    return row;
  });
  return { file: { path: segmentPath(name), bytes, replaces: false }, rows: packRows(rows) };
}

/**
 * The bodies files that an index segment refers to, eight bytes each, because every cycle with changes
 * adds one. It stores the first 52 bits of each SHA-256 name. A collision only keeps an unreferenced
 * file.
 */
export class NameTable {
  private readonly keys: Float64Array;

  /** @param files the file table of an index part */
  constructor(files: Uint8Array) {
    const view = new DataView(files.buffer, files.byteOffset, files.length);
    this.keys = new Float64Array(files.length / FILE_BYTES);
    for (let i = 0; i < this.keys.length; i++) {
      const at = i * FILE_BYTES;
      this.keys[i] = view.getUint32(at) * 2 ** 20 + (view.getUint32(at + 4) >>> 12);
    }
    this.keys.sort();
  }

  /** @param name in hex */
  has(name: string): boolean {
    const key = parseInt(name.slice(0, 13), 16);
    let from = 0;
    let to = this.keys.length;
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (this.keys[middle]! < key) from = middle + 1;
      else to = middle;
    }
    return this.keys[from] === key;
  }
}
