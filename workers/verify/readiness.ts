import { healthCheck, Heartbeat, type Readiness } from '#runtime/ops/health';
import type { Pool } from '#sql/db/transaction';

/** Many times the duration of a pass on a busy machine. */
const STALLED_MS = 10_000;

export function verifierHeartbeats(): VerifierHeartbeats {
  return {
    log: new Heartbeat(STALLED_MS),
    expiryScan: new Heartbeat(STALLED_MS),
    scrub: new Heartbeat(STALLED_MS),
  };
}

/** Ready when the database answers and every pass of the loop succeeded recently. */
export function verifierReadiness(sql: Pool, pulses: VerifierHeartbeats): () => Promise<Readiness> {
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
      details: { status: ready ? 'ready' : 'unavailable', dependencies, rounds },
    };
  };
}

/** Heartbeats of the passes of the verifier's loop. */
export interface VerifierHeartbeats {
  /** Extends the verified prefix. */
  log: Heartbeat;
  /** Expiry scan. */
  expiryScan: Heartbeat;
  /** Scrubber. */
  scrub: Heartbeat;
}
