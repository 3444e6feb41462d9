/** What a group of admissions goes through, in this order. */
export type Stage = 'load' | 'prepare' | 'lock' | 'append' | 'commit';

export interface Settled {
  admitted: number;
  denied: number;
  refused: number;
}

/** What is counted of the admit pipeline: a few numbers a transaction, and nothing for each item. */
export interface AdmitMetrics {
  /** A transaction that settled so many is committed. */
  committed(settled: Settled): void;
  took(stage: Stage, ms: number): void;
  /** The sweeper found so many that had waited too long. */
  requeued(kind: 'admissions' | 'batches' | 'revocations', count: number): void;
}

export const UNCOUNTED: AdmitMetrics = {
  committed: () => undefined,
  took: () => undefined,
  requeued: () => undefined,
};
