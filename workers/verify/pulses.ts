import type { Pulse } from '#runtime/ops/pulse';

/** How each part of the verifier's loop goes. */
export interface VerifierPulses {
  /** Following the log. */
  log: Pulse;
  /** Looking for what is over. */
  upkeep: Pulse;
  /** Verifying again what was verified long ago. */
  scrub: Pulse;
}
