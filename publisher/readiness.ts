import { Heartbeat, type Readiness } from '#runtime/ops/health';
import type { CycleObserver } from './run.js';
import { LeaseLostError, FatalPublishError, type StopCode } from './errors.js';
import type { CycleReport } from './cycle.js';
import { UnknownSigner } from './plan/unknown-signer.js';

/** Ticks come every second; one that publishes a great backlog takes longer, and that is said too. */
const STALLED_MS = 10_000;

export interface PublisherReadiness extends CycleObserver {
  find(): Readiness;
}

/**
 * Ready: it leads or stands by, and its last tick went well and is not long ago. A verifier that is
 * silent keeps it from publishing, which is what it is for, so then it is not. `unknown_signer` is
 * the key that it lacks.
 */
export function publisherReadiness(): PublisherReadiness {
  const ticks = new Heartbeat(STALLED_MS);
  let outcome: CycleReport['outcome'] | null = null;
  let unknownSigner: string | null = null;
  let publishedAt: number | null = null;
  let refused: StopCode | null = null;
  return {
    went: (report) => {
      outcome = report.outcome;
      unknownSigner = null;
      if (outcome === 'published') publishedAt = performance.now();
      ticks.success();
    },
    failed: (error) => {
      unknownSigner = error instanceof UnknownSigner ? error.key : null;
      const isLost = error instanceof LeaseLostError;
      // Another publisher leads, or this one must not.
      if (isLost || unknownSigner !== null) outcome = 'standby';
      if (isLost) ticks.success();
      else ticks.failed();
      if (error instanceof FatalPublishError) refused = error.code;
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
        says: {
          status: ready ? 'ready' : 'unavailable',
          role,
          ticks: ticks.state,
          verifier,
          ...(unknownSigner === null ? {} : { unknown_signer: unknownSigner }),
          published_ms_ago:
            publishedAt === null ? null : Math.round(performance.now() - publishedAt),
          ...(refused !== null && { refused }),
        },
      };
    },
  };
}
