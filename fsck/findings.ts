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

export interface FindingsState {
  counts: Partial<Record<FindingCode, number>>;
  told: Finding[];
  unchecked: string[];
  leftOut: string[];
}

/** The findings and the unchecked parts of a run. */
export class Findings {
  private readonly counts: Map<FindingCode, number>;
  private readonly told: Finding[];
  private readonly uncheckedParts: Set<string>;
  private readonly skippedParts: Set<string>;
  private readonly seen: Set<string>;

  constructor(state?: FindingsState) {
    this.counts = new Map(Object.entries(state?.counts ?? {}) as [FindingCode, number][]);
    this.told = [...(state?.told ?? [])];
    this.uncheckedParts = new Set(state?.unchecked);
    this.skippedParts = new Set(state?.leftOut);
    this.seen = new Set(this.told.map(({ code, where }) => `${code} ${where}`));
  }

  readonly add: Report = (code, where, expected) => {
    // A resumed run repeats some checks.
    if (this.seen.has(`${code} ${where}`)) return;
    const count = (this.counts.get(code) ?? 0) + 1;
    this.counts.set(code, count);
    if (count > MAX_REPORTED_PER_CODE) return;
    this.seen.add(`${code} ${where}`);
    this.told.push({ code, where, expected, ...FINDINGS[code] });
  };

  /** Records a part that could not be read. */
  unchecked(what: string): void {
    this.uncheckedParts.add(what);
  }

  /** Records a part that the options exclude. */
  skip(what: string): void {
    this.skippedParts.add(what);
  }

  get all(): readonly Finding[] {
    return this.told;
  }

  /** Findings per code, including those that are only counted. */
  get countOf(): Partial<Record<FindingCode, number>> {
    return Object.fromEntries(this.counts);
  }

  get notChecked(): string[] {
    return [...this.uncheckedParts];
  }

  get leftOut(): string[] {
    return [...this.skippedParts];
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
