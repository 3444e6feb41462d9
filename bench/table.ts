import type { Bound, Row } from './row.js';

/** The widest line. Names longer than their column are cut; notes go on to the next line. */
export const TABLE_WIDTH = 120;

const COLUMNS = [
  { title: 'row', width: 42, right: false },
  { title: 'value', width: 20, right: true },
  { title: 'against', width: 12, right: true },
  { title: 'ratio', width: 7, right: true },
  { title: 'reach', width: 24, right: false },
  { title: 'ok', width: 3, right: false },
] as const;
const INDENT = '    ';

/** The rows as text for people: a line of figures each, with what it is held against below it. */
export function table(rows: readonly Row[]): string {
  const titles = line(COLUMNS.map(({ title }) => title));
  const rule = '─'.repeat(titles.length);
  return [titles, rule, ...rows.flatMap(linesOf), rule, summary(rows)].join('\n');
}

function linesOf({ row, value, unit, against, ratio, reach, ok, note }: Row): string[] {
  const figures = line([
    row,
    `${number(value)} ${unit}`,
    against === null ? '' : number(against.value),
    ratio === null ? '' : number(ratio),
    [bounds('ratio ', reach?.ratio), bounds('', reach?.value)].filter(Boolean).join(', '),
    ok === null ? '–' : ok ? 'yes' : 'NO',
  ]);
  const more = [against === null ? '' : `against ${against.what}`, note ?? ''];
  return [figures, ...more.filter(Boolean).flatMap(wrapped)];
}

function line(cells: readonly string[]): string {
  return COLUMNS.map(({ width, right }, i) => {
    const cell = cells[i] ?? '';
    const cut = cell.length > width ? `${cell.slice(0, width - 1)}…` : cell;
    return right ? cut.padStart(width) : cut.padEnd(width);
  })
    .join('  ')
    .trimEnd();
}

function bounds(of: string, bound: Bound | undefined): string {
  const { atLeast, atMost } = bound ?? {};
  const least = atLeast === undefined ? '' : `${of}≥ ${number(atLeast)}`;
  const most = atMost === undefined ? '' : `${of}≤ ${number(atMost)}`;
  return [least, most].filter(Boolean).join(', ');
}

/** Large ones whole, small ones to three digits that count. */
export function number(value: number): string {
  if (!Number.isFinite(value)) return 'none';
  const digits =
    Math.abs(value) >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return value.toLocaleString('en-US', digits);
}

/** Words on lines that fit, indented below their row. */
function wrapped(text: string): string[] {
  const lines: string[] = [];
  let current = INDENT;
  for (const word of text.split(/\s+/)) {
    const longer = current === INDENT ? current + word : `${current} ${word}`;
    if (longer.length > TABLE_WIDTH && current !== INDENT) {
      lines.push(current);
      current = INDENT + word;
    } else current = longer;
  }
  return [...lines, current];
}

function summary(rows: readonly Row[]): string {
  const count = (ok: boolean | null): number => rows.filter((one) => one.ok === ok).length;
  const missed = rows.filter(({ ok }) => ok === false).map(({ row }) => row);
  const shown = `${String(count(true))} reached, ${String(count(false))} missed, ${String(count(null))} shown only`;
  return missed.length === 0 ? shown : `${shown}\nmissed: ${missed.join('; ')}`;
}
