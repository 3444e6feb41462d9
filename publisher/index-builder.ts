import type { IndexRows } from '#protocol/snapshot/index-part';
import type { IndexPartPin } from '#protocol/snapshot/manifest';
import { mergeRows } from '#protocol/snapshot/merge';
import { SEALED_ENTRIES } from './compaction.js';
import type { TickContext } from './context.js';

/** Collects rows in memory and writes an index part when there are many, or at the end. */
export class IndexBuilder {
  private pending: IndexRows[] = [];
  private entries = 0;

  constructor(
    private readonly ctx: TickContext,
    private pins: readonly IndexPartPin[],
  ) {}

  async add(rows: IndexRows): Promise<void> {
    this.pending.push(rows);
    this.entries += rows.high.length;
    if (this.entries >= SEALED_ENTRIES) await this.flush();
  }

  async finish(): Promise<IndexPartPin[]> {
    if (this.pending.length > 0) await this.flush();
    return [...this.pins];
  }

  private async flush(): Promise<void> {
    const { pins, file } = await this.ctx.index.extend(this.pins, mergeRows(this.pending));
    await this.ctx.writer.put([file]);
    this.pins = pins;
    this.pending = [];
    this.entries = 0;
  }
}
