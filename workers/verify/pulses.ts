import type { Heartbeat } from '#runtime/ops/pulse';

/** How each part of the verifier's loop goes. */
export interface VerifierPulses {
  /** Following the log. */
  log: Heartbeat;
  /** Looking for what is over. */
  expiryScan: Heartbeat;
  /** Verifying again what was verified long ago. */
  scrub: Heartbeat;
}
