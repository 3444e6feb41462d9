import { healthCheck, Heartbeat, type Readiness } from '#runtime/ops/health';
import type { Pool } from '#sql/db/transaction';

/** Many times what a round takes, on a machine that has enough else to do. */
const STALLED_MS = 10_000;

export function verifierPulses(): VerifierPulses {
  return {
    log: new Heartbeat(STALLED_MS),
    expiryScan: new Heartbeat(STALLED_MS),
    scrub: new Heartbeat(STALLED_MS),
  };
}

/** Ready: the database answers, and every part of the loop went well lately. */
export function verifierReadiness(sql: Pool, pulses: VerifierPulses): () => Promise<Readiness> {
  const database = healthCheck(() => sql`select 1`);
  return async () => {
    const dependencies = { database: await database() };
    const rounds = {
      log: pulses.log.state,
      upkeep: pulses.expiryScan.state,
      scrub: pulses.scrub.state,
    };
    const ready =
      dependencies.database === 'up' && Object.values(rounds).every((state) => state === 'up');
    return {
      ready,
      says: { status: ready ? 'ready' : 'unavailable', dependencies, rounds },
    };
  };
}

/** How each part of the verifier's loop goes. */
export interface VerifierPulses {
  /** Following the log. */
  log: Heartbeat;
  /** Looking for what is over. */
  expiryScan: Heartbeat;
  /** Verifying again what was verified long ago. */
  scrub: Heartbeat;
}
