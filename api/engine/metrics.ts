import type { Lane } from '#sql/admissions/accept';

/** What an admission that was sent came to, as far as the engine knows. */
export type AdmissionOutcome = 'accepted' | 'replayed' | 'refused';

/** What is counted of the engine API. Routes are the documented ones: no path that was sent is among them. */
export interface EngineMetrics {
  /** `status`: null when the client went before it was answered; `route`: null when there is none. */
  answered(route: string | null, method: string, status: number | null, ms: number): void;
  admissions(lane: Lane | 'batch', outcome: AdmissionOutcome, count: number): void;
}
