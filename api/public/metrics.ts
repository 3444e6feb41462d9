/** Metrics of the public API. Routes are documented paths, never request paths: those may have tokens. */
export interface PublicMetrics {
  /** Runs on the hot path of every lookup: increment only. */
  countRequest(route: string | null, method: string, status: number | null): void;
  observeDuration(route: string | null, ms: number): void;
  /** Counts a lookup by its `verification_status`. */
  countVerdict(status: string): void;
}
