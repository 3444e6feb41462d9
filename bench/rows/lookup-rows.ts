import { median, spread } from '../figures/median.js';
import type { Round } from '../lookups/paired-load.js';
import { rowOf, type Row } from '../row.js';

/** The rounds of each server and question that is compared. */
export interface LookupRounds {
  hit: readonly Round[];
  nginx: readonly Round[];
  miss: readonly Round[];
  older: readonly Round[];
  express: readonly Round[];
  /** Node's own HTTP with one answer for everything. */
  constant: readonly Round[];
}

/**
 * A row for each comparison, in requests for each second that the server had of its core. When nobody
 * else wants that core, that is requests a second; when somebody does, it is still what the server
 * makes of its time, where requests a second would say how the time was shared.
 *
 * @param sizes what was looked at, for the note
 */
export function lookupRows(rounds: LookupRounds, sizes: string): Row[] {
  const { hit, nginx, miss, older, express, constant } = rounds;
  return [
    compared('public lookup, hit', hit, 'nginx, the same bodies as files', nginx, {
      atLeast: 0.95,
      note: `nginx: ${seen(nginx)}; ${pairedRatio(hit, constant).toFixed(2)} of what Node's own HTTP makes; ${sizes}`,
    }),
    compared('public lookup, miss (404)', miss, "the same facade's hit", hit, { atLeast: 1 }),
    compared('public lookup of an old proof', older, 'the hit inside the window', hit, {
      atLeast: 0.5,
      note: 'outside the window, over the whole history',
    }),
    compared(
      'public lookup, through Express only',
      express,
      'the hit through the listener',
      hit,
      {},
    ),
    compared("Node's own HTTP, one constant answer", constant, 'nginx, as above', nginx, {
      note: 'no lookup and no file: the most that a server on Node can reach',
    }),
  ];
}

function compared(
  row: string,
  own: readonly Round[],
  what: string,
  others: readonly Round[],
  { atLeast, note }: { atLeast?: number; note?: string },
): Row {
  return rowOf({
    row,
    value: perCpuSecond(own),
    unit: 'requests/CPU s',
    against: { what, value: perCpuSecond(others) },
    ratio: pairedRatio(own, others),
    ...(atLeast !== undefined && { reach: { ratio: { atLeast } } }),
    note: [seen(own), ...(note === undefined ? [] : [note])].join('; '),
  });
}

function perCpuSecond(rounds: readonly Round[]): number {
  return 1e6 / median(rounds.map(({ cpuMicros }) => cpuMicros));
}

/** How two compare, round by round: the middle of the ratios. */
export function pairedRatio(rounds: readonly Round[], others: readonly Round[]): number {
  return median(rounds.map(({ cpuMicros }, i) => (others[i]?.cpuMicros ?? NaN) / cpuMicros));
}

/** What was seen from outside, and whose core was the limit. */
function seen(rounds: readonly Round[]): string {
  const middle = (figure: keyof Round): number => median(rounds.map((round) => round[figure]));
  const percent = (figure: 'serverBusy' | 'loadBusy'): string =>
    `${(100 * middle(figure)).toFixed(0)} %`;
  return (
    `${middle('cpuMicros').toFixed(1)} µs of CPU (${spread(
      rounds.map(({ cpuMicros }) => cpuMicros),
      1,
    )}), ` +
    `${middle('rate').toFixed(0)}/s, p99 ${(middle('p99') / 1000).toFixed(1)} ms, ` +
    `had ${percent('serverBusy')} of its core, wrk ${percent('loadBusy')} of its own`
  );
}
