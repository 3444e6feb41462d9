import type { Tool } from './tools.js';

/** What a figure may be at least and at most; both, one, or (for what is only shown) neither. */
export interface Bound {
  atLeast?: number;
  atMost?: number;
}

/** One line of the table, and one element of `bench/results/latest.json`. */
export interface Row {
  /** Its stable name: results of different days are compared by it. */
  row: string;
  value: number;
  /** Of `value` and of `against.value`. */
  unit: string;
  /** The floor or the peer, measured in the same run. */
  against: { what: string; value: number } | null;
  /** What is claimed: `value` by `against.value`, unless the row says another. */
  ratio: number | null;
  reach: { ratio?: Bound; value?: Bound } | null;
  /** Whether `reach` is reached; null when there is nothing to reach. */
  ok: boolean | null;
  /** One line: what bounds it, the sizes, the spread. */
  note?: string;
}

/** What a measurement found; the rest of a row follows from it. */
export type Measured = Pick<Row, 'row' | 'value' | 'unit' | 'note'> &
  Partial<Pick<Row, 'against' | 'ratio' | 'reach'>>;

/** A row with its ratio and its judgement. */
export function rowOf({ against = null, reach = null, note, ...measured }: Measured): Row {
  const { row, value, unit } = measured;
  const ratio = measured.ratio ?? (against === null ? null : value / against.value);
  const ok = isReached({ value, ratio, reach });
  return { row, value, unit, against, ratio, reach, ok, ...(note !== undefined && { note }) };
}

/**
 * Whether a row reaches what it has to: null when it has to reach nothing. What was not measured, or
 * is no finite number, reaches nothing, so that a broken measurement never passes.
 */
export function isReached({
  value,
  ratio,
  reach,
}: Pick<Row, 'value' | 'ratio' | 'reach'>): boolean | null {
  const bounds = [
    { figure: ratio, bound: reach?.ratio },
    { figure: value, bound: reach?.value },
  ].filter(({ bound }) => bound?.atLeast !== undefined || bound?.atMost !== undefined);
  if (bounds.length === 0) return null;
  return bounds.every(({ figure, bound }) => {
    if (figure === null || !Number.isFinite(figure)) return false;
    return figure >= (bound?.atLeast ?? -Infinity) && figure <= (bound?.atMost ?? Infinity);
  });
}

/** A measurement that threw, or measured nothing, is a row that misses its reach. */
export function failedRow(measurement: string, error: unknown): Row {
  const said = error instanceof Error ? error.message : String(error);
  return rowOf({
    row: measurement,
    value: 0,
    unit: 'rows',
    reach: { value: { atLeast: 1 } },
    note: `failed: ${said.replace(/\s+/g, ' ')}`,
  });
}

/** What every measurement is given. */
export interface BenchContext {
  /** Smaller and shorter, so that all of them together take minutes and not a quarter of an hour; rows say so. */
  quick: boolean;
  /** Leave CPU profiles in `profiles` of the directory, by program, and say where the time went. */
  profile: boolean;
  /** An empty directory of its own, on a real disk; removed afterwards unless `--dir` was given. */
  dir: string;
  /** Where the registry is that several measurements look at; filled by the first that needs it. */
  sharedDir: string;
  /** A real Redis that persists as operators are told to have it. */
  redisUrl: string;
  redisPid: number;
  /** Fires when the bench is interrupted: a measurement then closes what it opened and throws. */
  signal: AbortSignal;
}

/** One part of `npm run bench`: it brings up what it measures, measures, and closes it again. */
export interface Measurement {
  /** For `--only`, and the name of its directory: a–z and dashes. */
  name: string;
  /** What has to be installed for it beside npm's packages. */
  needs?: readonly Tool[];
  measure(context: BenchContext): Promise<Row[]>;
}
