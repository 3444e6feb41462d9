import { FINDINGS, type FindingCode } from './codes.js';

/** One deviation from the expected state. */
export interface Finding {
  code: FindingCode;
  /** Corruption, as opposed to a state of a running system. */
  grave: boolean;
  /** Table and row, or file and offset. */
  where: string;
  /** What was expected there, and what was found. */
  expected: string;
  /** What to do about it. */
  advice: string;
}

export type Report = (code: FindingCode, where: string, expected: string) => void;

/** Findings reported per code; the rest are counted, so that a damaged disk cannot fill the memory. */
const MAX_REPORTED_PER_CODE = 100;

/** The findings and the unchecked parts of a run, which a resumed run continues. */
export interface FindingsState {
  /** Findings per code, including those that are only counted. */
  counts: Partial<Record<FindingCode, number>>;
  reported: Finding[];
  /** Parts that could not be read. */
  unchecked: string[];
  /** Parts that the options exclude. */
  skipped: string[];
}

export class Findings {
  readonly state: FindingsState;
  private readonly seen: Set<string>;

  constructor(state?: FindingsState) {
    this.state = state ?? { counts: {}, reported: [], unchecked: [], skipped: [] };
    this.seen = new Set(this.state.reported.map(({ code, where }) => `${code} ${where}`));
  }

  readonly add: Report = (code, where, expected) => {
    // A resumed run repeats some checks.
    if (this.seen.has(`${code} ${where}`)) return;
    const { counts, reported } = this.state;
    const count = (counts[code] ?? 0) + 1;
    counts[code] = count;
    if (count > MAX_REPORTED_PER_CODE) return;
    this.seen.add(`${code} ${where}`);
    reported.push({ code, where, expected, ...FINDINGS[code] });
  };

  readonly unchecked = (part: string): void => {
    if (!this.state.unchecked.includes(part)) this.state.unchecked.push(part);
  };

  readonly skip = (part: string): void => {
    if (!this.state.skipped.includes(part)) this.state.skipped.push(part);
  };

  get isCorrupt(): boolean {
    return (Object.keys(this.state.counts) as FindingCode[]).some((code) => FINDINGS[code].grave);
  }
}
