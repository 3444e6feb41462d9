import type { IndexRows } from '#protocol/snapshot/index-part';
import { PROOF_PARTS, type IndexPartPin } from '#protocol/snapshot/manifest';
import { mergeRows } from '#protocol/snapshot/merge';
import { bodiesFile, type RenderedRecord } from '../render/files.js';
import { SEALED_ENTRIES } from './compaction.js';
import type { CycleContext } from '../context.js';

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
    const bodies = bodiesFile(this.ctx.sha256, records);
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
