import type { Lane } from '#sql/admissions/accept';

/** Outcome of an admission request at the engine. */
export type AdmissionOutcome = 'accepted' | 'replayed' | 'refused';

/** Metrics of the engine API. Labels use documented routes, never client-sent paths. */
export interface EngineMetrics {
  /** `status`: null if the client disconnected first; `route`: null for an unknown path. */
  answered(route: string | null, method: string, status: number | null, ms: number): void;
  admissions(lane: Lane | 'batch', outcome: AdmissionOutcome, count: number): void;
}
