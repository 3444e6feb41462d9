/** What is counted of the verifier. */
export interface VerifierMetrics {
  /** So many leaves have been verified, for the first time or again. */
  verified(round: 'log' | 'scrub', passed: number, failed: number): void;
  /** So many verdicts of failure were written, on leaves that no compromised key voids. */
  failed(leaves: number): void;
}
