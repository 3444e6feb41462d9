import { FINDINGS, type FindingCode } from './codes.js';

/** One thing that is not as it must be. */
export interface Finding {
  code: FindingCode;
  /** Whether it is corruption, or the state of a system that runs. */
  grave: boolean;
  /** Table and row, or file and offset. */
  where: string;
  /** What was expected there, and what was found. */
  expected: string;
  /** What to do about it. */
  advice: string;
}

export type Report = (code: FindingCode, where: string, expected: string) => void;

/** Told in full of each code; the others are counted. A damaged disk must not fill the memory. */
const TOLD_OF_EACH = 100;

export interface FindingsState {
  counts: Partial<Record<FindingCode, number>>;
  told: Finding[];
  unchecked: string[];
  leftOut: string[];
}

/** What was found so far, and what could not be checked. */
export class Findings {
  private readonly counts: Map<FindingCode, number>;
  private readonly told: Finding[];
  private readonly uncheckedThings: Set<string>;
  private readonly leftOutThings: Set<string>;
  private readonly seen: Set<string>;

  constructor(state?: FindingsState) {
    this.counts = new Map(Object.entries(state?.counts ?? {}) as [FindingCode, number][]);
    this.told = [...(state?.told ?? [])];
    this.uncheckedThings = new Set(state?.unchecked);
    this.leftOutThings = new Set(state?.leftOut);
    this.seen = new Set(this.told.map(({ code, where }) => `${code} ${where}`));
  }

  readonly add: Report = (code, where, expected) => {
    // A run that goes on looks at some things again.
    if (this.seen.has(`${code} ${where}`)) return;
    const count = (this.counts.get(code) ?? 0) + 1;
    this.counts.set(code, count);
    if (count > TOLD_OF_EACH) return;
    this.seen.add(`${code} ${where}`);
    this.told.push({ code, where, expected, ...FINDINGS[code] });
  };

  /** Something could not be looked at, so that nothing is known of it. */
  unchecked(what: string): void {
    this.uncheckedThings.add(what);
  }

  /** Something that this run was not to look at, or cannot from where it looks. */
  skip(what: string): void {
    this.leftOutThings.add(what);
  }

  get all(): readonly Finding[] {
    return this.told;
  }

  /** How many of each code, those that are not told in full included. */
  get countOf(): Partial<Record<FindingCode, number>> {
    return Object.fromEntries(this.counts);
  }

  get notChecked(): string[] {
    return [...this.uncheckedThings];
  }

  get leftOut(): string[] {
    return [...this.leftOutThings];
  }

  get isCorrupt(): boolean {
    return [...this.counts.keys()].some((code) => FINDINGS[code].grave);
  }

  get state(): FindingsState {
    return {
      counts: this.countOf,
      told: this.told,
      unchecked: this.notChecked,
      leftOut: this.leftOut,
    };
  }
}
