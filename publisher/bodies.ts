import { concat, toHex } from '#protocol/bytes';
import type { Sha256 } from '#protocol/hash';
import {
  packRows,
  RECORD_DIGEST_BYTES,
  type IndexRow,
  type IndexRows,
} from '#protocol/snapshot/index-part';
import { segmentPath } from '#protocol/snapshot/manifest';
import type { PublishedFile } from './publish.js';

/** A rendered record that is to go into a bodies file. */
export interface RenderedRecord {
  /** What it is indexed by, 16 bytes in hex: a proof's or package's id, or half of a token's hash. */
  id: string;
  /** Of a token or package: the number of the change that made it so. */
  leafIndex: number;
  /** How many proofs precede it in the log; windows are counted in it. */
  proofNumber: number;
  bytes: Uint8Array;
}

/** One content-addressed file of records, and the index rows that lead into it. */
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
