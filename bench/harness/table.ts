import type { Bound, Result } from './scenario.js';

/** Names that are longer than their column are cut. */
const COLUMNS = [
  { title: 'result', width: 42, right: false },
  { title: 'value', width: 20, right: true },
  { title: 'against', width: 12, right: true },
  { title: 'ratio', width: 7, right: true },
  { title: 'target', width: 24, right: false },
  { title: 'ok', width: 3, right: false },
] as const;

export function table(results: readonly Result[]): string {
  const titles = line(COLUMNS.map(({ title }) => title));
  const rule = '─'.repeat(titles.length);
  return [titles, rule, ...results.flatMap(linesOf), rule, summary(results)].join('\n');
}

function linesOf({ name, value, unit, against, ratio, target, ok, note }: Result): string[] {
  const figures = line([
    name,
    `${number(value)} ${unit}`,
    against === null ? '' : number(against.value),
    ratio === null ? '' : number(ratio),
    [bounds('ratio ', target?.ratio), bounds('', target?.value)].filter(Boolean).join(', '),
    ok === null ? '–' : ok ? 'yes' : 'NO',
  ]);
  const more = [against === null ? '' : `against ${against.what}`, note ?? ''];
  return [figures, ...more.filter(Boolean).map((text) => `    ${text}`)];
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

function bounds(of: string, { atLeast, atMost }: Bound = {}): string {
  const least = atLeast === undefined ? '' : `${of}≥ ${number(atLeast)}`;
  const most = atMost === undefined ? '' : `${of}≤ ${number(atMost)}`;
  return [least, most].filter(Boolean).join(', ');
}

/** Whole from 100 on, otherwise three significant digits. */
function number(value: number): string {
  if (!Number.isFinite(value)) return 'none';
  const digits =
    Math.abs(value) >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return value.toLocaleString('en-US', digits);
}

function summary(results: readonly Result[]): string {
  const count = (ok: boolean | null): string =>
    String(results.filter((one) => one.ok === ok).length);
  const missed = results.filter(({ ok }) => ok === false).map(({ name }) => name);
  const counts = `${count(true)} met, ${count(false)} missed, ${count(null)} without a target`;
  return missed.length === 0 ? counts : `${counts}\nmissed: ${missed.join('; ')}`;
}
