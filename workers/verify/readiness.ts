import { healthCheck } from '#runtime/ops/condition';
import { Heartbeat } from '#runtime/ops/pulse';
import type { Readiness } from '#runtime/ops/source';
import type { Pool } from '#sql/db';
import type { VerifierPulses } from './pulses.js';

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
