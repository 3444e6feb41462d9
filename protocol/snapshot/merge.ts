import { toHex } from '../bytes.js';
import {
  compareRowIds,
  emptyRows,
  FILE_BYTES,
  ROW_BYTES,
  rowFileNumber,
  setRowFileNumber,
  type IndexRows,
} from './index-part.js';

/**
 * Merges index segments, given oldest first, keeping the newest row of each id. The file table
 * lists only bodies files that still have a row; the files themselves do not change.
 */
export function mergeRows(parts: readonly IndexRows[]): IndexRows {
  const most = parts.reduce((sum, part) => sum + part.high.length, 0);
  const merged = emptyRows(most);
  const files = new FileTable();
  const cursors = parts.map(() => 0);
  let count = 0;
  for (;;) {
    // Starts at the newest part, so that among equal ids the newest row wins.
    let winner = -1;
    for (let i = parts.length - 1; i >= 0; i--) {
      if (cursors[i]! >= parts[i]!.high.length) continue;
      if (
        winner < 0 ||
        compareRowIds(parts[i]!, cursors[i]!, parts[winner]!, cursors[winner]!) < 0
      ) {
        winner = i;
      }
    }
    if (winner < 0) break;
    const from = parts[winner]!;
    const at = cursors[winner]!;
    merged.high[count] = from.high[at]!;
    merged.low[count] = from.low[at]!;
    merged.rows.set(from.rows.subarray(at * ROW_BYTES, (at + 1) * ROW_BYTES), count * ROW_BYTES);
    setRowFileNumber(merged.rows, count, files.numberOf(from, rowFileNumber(from.rows, at)));
    for (let i = 0; i < winner; i++) {
      if (
        cursors[i]! < parts[i]!.high.length &&
        compareRowIds(parts[i]!, cursors[i]!, from, at) === 0
      ) {
        cursors[i]!++;
      }
    }
    cursors[winner]!++;
    count++;
  }
  return {
    high: merged.high.slice(0, count),
    low: merged.low.slice(0, count),
    rows: merged.rows.slice(0, count * ROW_BYTES),
    files: files.table(),
  };
}

/** Numbers bodies files in the order in which surviving rows first refer to them. */
class FileTable {
  private readonly lines: Uint8Array[] = [];
  private readonly byName = new Map<string, number>();
  private readonly byOrigin = new Map<IndexRows, Int32Array>();

  numberOf(part: IndexRows, number: number): number {
    let known = this.byOrigin.get(part);
    if (known === undefined) {
      known = new Int32Array(part.files.length / FILE_BYTES).fill(-1);
      this.byOrigin.set(part, known);
    }
    if (known[number]! < 0) known[number] = this.add(part, number);
    return known[number]!;
  }

  private add(part: IndexRows, number: number): number {
    const line = part.files.subarray(number * FILE_BYTES, (number + 1) * FILE_BYTES);
    const name = toHex(line.subarray(0, 32));
    const known = this.byName.get(name);
    if (known !== undefined) return known;
    this.byName.set(name, this.lines.length);
    this.lines.push(line);
    return this.lines.length - 1;
  }

  table(): Uint8Array {
    const table = new Uint8Array(FILE_BYTES * this.lines.length);
    this.lines.forEach((line, i) => table.set(line, i * FILE_BYTES));
    return table;
  }
}
