import type { Outcome } from './fault.js';

const seconds = (ms: number | null): string => (ms === null ? '–' : `${(ms / 1000).toFixed(1)} s`);

const HEAD = [
  'injected',
  'acknowledged before',
  'failed meanwhile',
  'lost',
  'double',
  'recovered in',
  'settled in',
  'took',
];
const WIDTHS = [64, 19, 16, 4, 6, 12, 10, 7];

const lineOf = (cells: readonly string[]): string =>
  cells.map((cell, at) => cell[at === 0 ? 'padEnd' : 'padStart'](WIDTHS[at] ?? 0)).join(' | ');

export const hasPassed = ({ problems }: Outcome): boolean => problems.length === 0;

/** One line, and one more for each problem. */
export function rowOf(outcome: Outcome): string {
  if (outcome.skipped !== undefined) return `${outcome.name}: skipped, ${outcome.skipped}`;
  const cells = [
    `${hasPassed(outcome) ? 'ok' : 'FAILED'} ${outcome.name}`,
    String(outcome.before),
    String(outcome.failed),
    String(outcome.lost ?? '–'),
    String(outcome.double ?? '–'),
    seconds(outcome.answeredMs),
    seconds(outcome.settledMs),
    seconds(outcome.tookMs),
  ];
  const problems = outcome.problems.slice(0, 8).map((problem) => `    ${problem}`);
  const note = outcome.note === undefined ? [] : [`    ${outcome.note}`];
  return [lineOf(cells), ...note, ...problems].join('\n');
}

export const tableOf = (outcomes: readonly Outcome[]): string =>
  [lineOf(HEAD), WIDTHS.map((width) => '-'.repeat(width)).join('-+-'), ...outcomes.map(rowOf)].join(
    '\n',
  );
