import { rowOf, type Row } from '../row.js';

/** Answers that were not the expected ones, timeouts among them, by what they were. */
export class Unexpected {
  private readonly counts = new Map<string, number>();

  add(what: string, count = 1): void {
    if (count > 0) this.counts.set(what, (this.counts.get(what) ?? 0) + count);
  }

  /** A row that one of them fails: no figure counts that was reached by not answering. */
  row(row: string, of: string): Row {
    const kinds = [...this.counts].map(([what, count]) => `${String(count)} × ${what}`);
    return rowOf({
      row,
      value: [...this.counts.values()].reduce((sum, count) => sum + count, 0),
      unit: 'answers',
      reach: { value: { atMost: 0 } },
      note: `of ${of}: ${kinds.length === 0 ? 'none' : kinds.join('; ')}`,
    });
  }
}
