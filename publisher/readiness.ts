import { Pulse } from '#runtime/ops/pulse';
import type { Readiness } from '#runtime/ops/source';
import type { TickWatch } from './run.js';
import { LeadershipLost } from './stopped.js';
import type { TickReport } from './tick.js';

/** Ticks come every second; one that publishes a great backlog takes longer, and that is said too. */
const STALLED_MS = 10_000;

export interface PublisherReadiness extends TickWatch {
  find(): Readiness;
}

/**
 * Ready: it leads or stands by, and its last tick went well and is not long ago. A verifier that is
 * silent keeps it from publishing, which is what it is for, so then it is not.
 */
export function publisherReadiness(): PublisherReadiness {
  const ticks = new Pulse(STALLED_MS);
  let outcome: TickReport['outcome'] | null = null;
  return {
    went: (report) => {
      outcome = report.outcome;
      ticks.good();
    },
    failed: (error) => {
      if (error instanceof LeadershipLost) {
        // Somebody else leads, which is in order.
        outcome = 'standby';
        ticks.good();
      } else {
        ticks.failed();
      }
    },
    find: () => {
      if (outcome === null && ticks.state === 'up') {
        return { ready: false, says: { status: 'starting' } };
      }
      const role = outcome === null ? 'unknown' : outcome === 'standby' ? 'standby' : 'leader';
      const verifier = outcome === 'verifier_silent' ? 'silent' : 'up';
      const ready = ticks.state === 'up' && verifier === 'up';
      return {
        ready,
        says: { status: ready ? 'ready' : 'unavailable', role, ticks: ticks.state, verifier },
      };
    },
  };
}
