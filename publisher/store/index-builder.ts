import { concat, toHex } from '#protocol/bytes';
import {
  packRows,
  RECORD_DIGEST_BYTES,
  type IndexRow,
  type IndexRows,
} from '#protocol/snapshot/index-part';
import { PROOF_PARTS, segmentPath, type IndexPartPin } from '#protocol/snapshot/manifest';
import { mergeRows } from '#protocol/snapshot/merge';
import { nativeSha256 } from '#runtime/crypto/node';
import type { CycleContext } from '../context.js';
import { SEALED_ENTRIES } from './compaction.js';
import type { PublishedFile } from './writer.js';

/** A rendered record for a bodies file. */
export interface RenderedRecord {
  /** Index key, 16 bytes in hex: the id of a proof or package, or half of a token's hash. */
  id: string;
  /** For a token or package, the number of its last change. */
  leafIndex: number;
  /** Number of proofs before this one in the log, which decides whether the proof is recent. */
  proofNumber: number;
  bytes: Uint8Array;
}

/** Builds a content-addressed file of records, and the index rows that point into it. */
export function bodiesFile(records: readonly RenderedRecord[]): {
  file: PublishedFile;
  rows: IndexRows;
} {
  const bytes = concat(...records.map((record) => record.bytes));
  const name = toHex(nativeSha256(bytes));
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
      digest: nativeSha256(record.bytes).slice(0, RECORD_DIGEST_BYTES),
    };
    offset += record.bytes.length;
    return row;
  });
  return { file: { path: segmentPath(name), bytes, replaces: false }, rows: packRows(rows) };
}

/** Collects rows by kind, and writes an index segment when a kind is full or at the end. */
export class IndexBuilder {
  private readonly pending = new Map<string, IndexRows[]>();

  constructor(
    private readonly ctx: CycleContext,
    private pins: readonly IndexPartPin[],
  ) {}

  async add(rows: IndexRows, kind: string = PROOF_PARTS): Promise<void> {
    const pending = this.pending.get(kind) ?? [];
    this.pending.set(kind, pending);
    pending.push(rows);
    const entries = pending.reduce((sum, { high }) => sum + high.length, 0);
    if (entries >= SEALED_ENTRIES) await this.flush(kind);
  }

  /** Writes the records and adds their rows. */
  async addRecords(records: readonly RenderedRecord[], kind: string = PROOF_PARTS): Promise<void> {
    if (records.length === 0) return;
    const bodies = bodiesFile(records);
    await this.ctx.writer.put([bodies.file]);
    await this.add(bodies.rows, kind);
  }

  /** Writes the pending rows. Returns the pins of the whole index. */
  async finish(): Promise<IndexPartPin[]> {
    for (const kind of [...this.pending.keys()]) await this.flush(kind);
    return [...this.pins];
  }

  private async flush(kind: string): Promise<void> {
    const rows = mergeRows(this.pending.get(kind) ?? []);
    const { pins, file } = await this.ctx.index.extend(this.pins, kind, rows);
    await this.ctx.writer.put([file]);
    this.pins = pins;
    this.pending.delete(kind);
  }
}
