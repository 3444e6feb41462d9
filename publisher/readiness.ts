import { Heartbeat, type Readiness } from '#runtime/ops/health';
import type { CycleObserver } from './run.js';
import { LeaseLostError, FatalPublishError, type StopCode, UnknownSignerError } from './errors.js';
import type { CycleReport } from './cycle.js';

/** Cycles start every second. A cycle that publishes a large backlog may exceed this. */
const STALLED_MS = 10_000;

export interface PublisherReadiness extends CycleObserver {
  find(): Readiness;
}

/**
 * Ready when it leads or is a standby, its last cycle succeeded recently, and the verifier's expiry
 * scans allow it to publish. `unknown_signer` is the key that it lacks.
 */
export function publisherReadiness(): PublisherReadiness {
  const cycles = new Heartbeat(STALLED_MS);
  let outcome: CycleReport['outcome'] | null = null;
  let unknownSigner: string | null = null;
  let publishedAt: number | null = null;
  let stopCode: StopCode | null = null;
  return {
    went: (report) => {
      outcome = report.outcome;
      unknownSigner = null;
      if (outcome === 'published') publishedAt = performance.now();
      cycles.success();
    },
    failed: (error) => {
      unknownSigner = error instanceof UnknownSignerError ? error.key : null;
      const isLost = error instanceof LeaseLostError;
      // Another publisher leads, or this one must not lead.
      if (isLost || unknownSigner !== null) outcome = 'standby';
      if (isLost) cycles.success();
      else cycles.failed();
      if (error instanceof FatalPublishError) stopCode = error.code;
    },
    find: () => {
      if (outcome === null && cycles.state === 'up') {
        return { ready: false, details: { status: 'starting' } };
      }
      const role = outcome === null ? 'unknown' : outcome === 'standby' ? 'standby' : 'leader';
      const verifier = outcome === 'verifier_silent' ? 'silent' : 'up';
      const ready = cycles.state === 'up' && verifier === 'up';
      return {
        ready,
        details: {
          status: ready ? 'ready' : 'unavailable',
          role,
          ticks: cycles.state,
          verifier,
          ...(unknownSigner === null ? {} : { unknown_signer: unknownSigner }),
          published_ms_ago:
            publishedAt === null ? null : Math.round(performance.now() - publishedAt),
          ...(stopCode !== null && { refused: stopCode }),
        },
      };
    },
  };
}
