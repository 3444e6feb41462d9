import { Watchdog } from '#runtime/process/watchdog';
import type { VerifyContext } from './context.js';
import { extendVerifiedPrefix } from './verified-prefix.js';
import type { VerifierPulses } from './readiness.js';
import { scrub } from './scrub.js';
import { scanExpiries } from './expiries.js';

export interface VerifierOptions {
  /** Leaves verified in one go. */
  batch: number;
  /** As many as it comes to while the log is ahead: what a round costs by itself is then shared by more. */
  mostBatch: number;
  /** Milliseconds between looks at a log that has not grown. */
  idleMs: number;
  /** Milliseconds between looks at what may be over. */
  upkeepMs: number;
  /** Milliseconds between steps of the scrubber. */
  scrubMs: number;
  /** Leaves that the scrubber verifies again in a step. */
  scrubBatch: number;
  /** Milliseconds after which a round is given up that does not end. */
  stallTimeoutMs: number;
}

export const VERIFIER_DEFAULTS: VerifierOptions = {
  batch: 1000,
  mostBatch: 4000,
  idleMs: 50,
  upkeepMs: 200,
  scrubMs: 1000,
  scrubBatch: 200,
  // A round is a handful of statements, each of which the database ends after 30 s.
  stallTimeoutMs: 300_000,
};

/**
 * Verifies until told to stop: what is new first, then what may be over, then once more what was
 * verified long ago. An error stops nothing but its own round; nothing is asserted meanwhile.
 * Rejects, with a HungError, when a round does not end.
 */
export async function runVerifier(
  context: VerifyContext,
  signal: AbortSignal,
  options: VerifierOptions = VERIFIER_DEFAULTS,
): Promise<void> {
  let watchdog: Watchdog | undefined;
  const hung = new Promise<never>((_, onHung) => {
    watchdog = new Watchdog({
      what: 'a round of the verifier',
      limitMs: options.stallTimeoutMs,
      onHung,
    });
  });
  try {
    await Promise.race([verify({ ...context, watchdog }, signal, options), hung]);
  } finally {
    watchdog?.stop();
  }
}

async function verify(
  context: Watched,
  signal: AbortSignal,
  options: VerifierOptions,
): Promise<void> {
  let upkeepDue = 0;
  let scrubDue = 0;
  let urgent = false;
  let limit = options.batch;
  while (!signal.aborted) {
    const asked = limit;
    const covered = await round(context, 'log', () => extendVerifiedPrefix(context, asked));
    limit = covered === asked ? Math.min(2 * limit, options.mostBatch) : options.batch;
    if (performance.now() >= upkeepDue) {
      await round(context, 'expiryScan', () =>
        scanExpiries(context, options.batch, covered !== null),
      );
      upkeepDue = performance.now() + options.upkeepMs;
    }
    if (urgent || performance.now() >= scrubDue) {
      const count: number = urgent ? options.batch : options.scrubBatch;
      const scrubbed = await round(context, 'scrub', () => scrub(context, count));
      urgent = scrubbed?.urgent ?? false;
      scrubDue = performance.now() + options.scrubMs;
    }
    if ((covered ?? 0) === 0 && !urgent) await pause(options.idleMs, signal);
  }
  context.voided.report(context.log);
}

type Watched = VerifyContext & { watchdog: Watchdog | undefined };

async function round<T>(
  context: Watched,
  part: keyof VerifierPulses,
  work: () => Promise<T>,
): Promise<T | null> {
  context.watchdog?.began();
  try {
    const result = await work();
    context.pulses?.[part].success();
    return result;
  } catch (error) {
    context.pulses?.[part].failed();
    const message = error instanceof Error ? error.message : String(error);
    if (
      message !== context.lastFailure?.message ||
      performance.now() - context.lastFailure.at > 10_000
    ) {
      context.lastFailure = { message, at: performance.now() };
      context.log.error({ err: error }, 'a round of the verifier failed');
    }
    return null;
  } finally {
    context.watchdog?.ended();
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done);
  });
}
