import type { VerifyCrypto } from '#protocol/verify';
import type { Logger } from '#runtime/log';
import type { Pool } from '#sql/db';
import type { VerifierMetrics } from './metrics.js';
import type { VerifierPulses } from './pulses.js';
import type { VoidedProofs } from './voided.js';

/** What the verifier works with. It holds no key and asks nobody but the registry. */
export interface VerifyContext {
  sql: Pool;
  crypto: VerifyCrypto;
  log: Logger;
  /** Proofs of compromised keys that no log line reports yet. */
  voided: VoidedProofs;
  /** Told of each round of the loop. */
  pulses?: VerifierPulses;
  /** Absent: nothing is counted. */
  metrics?: VerifierMetrics;
  /** What a round failed with last: the same again is not worth another line. */
  lastFailure?: { message: string; at: number };
}

/** The log itself is damaged: a leaf is missing, or the past is not what was verified. */
export class LogDamagedError extends Error {
  override readonly name = 'LogDamagedError';
}
