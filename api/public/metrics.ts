/** What is counted of the public API. Routes are the documented ones: no path that was sent is among them. */
export interface PublicMetrics {
  /** A request was answered. On the way of every lookup, where it may do no more than count. */
  answered(route: string | null, method: string, status: number | null): void;
  took(route: string | null, ms: number): void;
  /** A lookup was answered with this `verification_status`. */
  told(status: string): void;
}
