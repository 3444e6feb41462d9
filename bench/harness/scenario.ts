import type { Cleanup } from './cleanup.js';
import { median, pairedRatio, spread } from './statistics.js';
import type { Tool } from './tools.js';

export interface Bound {
  atLeast?: number;
  atMost?: number;
}

/** One row of the printed table, and one item of `results` in `bench/results/latest.json`. */
export interface Result {
  /** Must not change, because results of different days are compared by name. */
  name: string;
  value: number;
  unit: string;
  /** The value to compare with, measured in the same run. */
  against: { what: string; value: number } | null;
  /** `value / against.value`, or the ratio that the scenario computed from paired rounds. */
  ratio: number | null;
  target: { ratio?: Bound; value?: Bound } | null;
  /** Whether the target is met; null without a target. */
  ok: boolean | null;
  note?: string;
}

/** A measured figure, from which {@link resultOf} derives the other members. */
export type Measured = Pick<Result, 'name' | 'value' | 'unit' | 'note'> &
  Partial<Pick<Result, 'against' | 'ratio' | 'target'>>;

export function resultOf({ against = null, target = null, note, ...measured }: Measured): Result {
  const { name, value, unit } = measured;
  const ratio = measured.ratio ?? (against === null ? null : value / against.value);
  const ok = isMet({ value, ratio, target });
  return { name, value, unit, against, ratio, target, ok, ...(note !== undefined && { note }) };
}

/** Runs every load once in each round, so that other activity of the machine affects all loads. */
export async function interleaved<T>(
  rounds: number,
  loads: readonly ((round: number) => Promise<T>)[],
): Promise<T[][]> {
  const results = loads.map((): T[] => []);
  for (let round = 0; round < rounds; round += 1) {
    for (const [at, load] of loads.entries()) results[at]!.push(await load(round));
  }
  return results;
}

/** The medians of two figures over interleaved rounds, and the median of their ratios in each round. */
export const comparedRounds = (
  figures: readonly number[],
  what: string,
  others: readonly number[],
): Pick<Result, 'value' | 'against' | 'ratio'> => ({
  value: median(figures),
  against: { what, value: median(others) },
  ratio: pairedRatio(figures, others),
});

/** Largest accepted cost relative to the first point. */
const MAX_RATIO = 1.25;

/** Compares the costs of each point with the costs of the first, in the same interleaved round. */
export function comparedWithFirst(
  points: readonly { name: string; costs: readonly number[]; note: string }[],
  { unit, what, digits }: { unit: string; what: string; digits: number },
): Result[] {
  const first = points[0]!.costs;
  return points.map(({ name, costs, note }) =>
    resultOf({
      name,
      unit,
      ...(costs === first
        ? { value: median(costs) }
        : { ...comparedRounds(costs, what, first), target: { ratio: { atMost: MAX_RATIO } } }),
      note: `median of ${String(costs.length)} interleaved rounds (${spread(costs, digits)}); ${note}`,
    }),
  );
}

/** Whether the target is met; null without a target. A missing or infinite figure misses the target. */
function isMet({ value, ratio, target }: Pick<Result, 'value' | 'ratio' | 'target'>) {
  const bounds = [
    { figure: ratio, bound: target?.ratio },
    { figure: value, bound: target?.value },
  ].filter(({ bound }) => bound?.atLeast !== undefined || bound?.atMost !== undefined);
  if (bounds.length === 0) return null;
  return bounds.every(({ figure, bound }) => {
    if (figure === null || !Number.isFinite(figure)) return false;
    return figure >= (bound?.atLeast ?? -Infinity) && figure <= (bound?.atMost ?? Infinity);
  });
}

/** The result of a scenario that threw or returned no results: its target is missed. */
export function failedResult(scenario: string, error: unknown): Result {
  const message = error instanceof Error ? error.message : String(error);
  return resultOf({
    name: scenario,
    value: 0,
    unit: 'results',
    target: { value: { atLeast: 1 } },
    note: `failed: ${message.replace(/\s+/g, ' ')}`,
  });
}

/**
 * Counts unexpected responses. A single unexpected response fails the scenario: rejections take little
 * CPU time, and would improve the figures.
 */
export class UnexpectedAnswers {
  private readonly counts = new Map<string, number>();

  add(what: string, count = 1): void {
    if (count > 0) this.counts.set(what, (this.counts.get(what) ?? 0) + count);
  }

  /** Counts every answer but 200, and requests without an answer. */
  addLoad({ answers, failed }: { answers: Record<string, number>; failed: number }): void {
    this.add('without an answer', failed);
    for (const [status, count] of Object.entries(answers)) {
      if (status !== '200') this.add(status, count);
    }
  }

  result(name: string, of: string): Result {
    const kinds = [...this.counts].map(([what, count]) => `${String(count)} × ${what}`);
    return resultOf({
      name,
      value: [...this.counts.values()].reduce((sum, count) => sum + count, 0),
      unit: 'answers',
      target: { value: { atMost: 0 } },
      note: `of ${of}: ${kinds.length === 0 ? 'none' : kinds.join('; ')}`,
    });
  }
}

export interface RunContext {
  quick: boolean;
  /** Proofs in the registry of the scenarios growth, storage, lookup and memory; fewer if `quick`. */
  proofs: number;
  /** The scenario's empty directory on a real disk; removed afterwards unless `--dir` is given. */
  dir: string;
  /** The directory of the shared registry, filled by the first scenario that needs it. */
  sharedDir: string;
  /** A Redis with the persistence settings that operators should use. */
  redis: { url: string; pid: number };
  /** Aborts when the bench is interrupted; the scenario then throws. */
  signal: AbortSignal;
  /** Functions to run after the scenario, whether it succeeded or failed. */
  cleanup: Cleanup;
}

/** One part of `npm run bench`: starts the programs that it measures, and measures them. */
export interface Scenario {
  /** Name in `--only` and of the scenario's directory. */
  name: string;
  needs?: readonly Tool[];
  run(context: RunContext): Promise<Result[]>;
}
