/** What is counted of the verifier. */
export interface VerifierMetrics {
  /** So many leaves have been verified, for the first time or again. */
  verified(round: 'log' | 'scrub', passed: number, failed: number): void;
  /** So many verdicts were written that say that a leaf does not verify. */
  failed(leaves: number): void;
}
