import { setTimeout as sleep } from 'node:timers/promises';
import { Watchdog } from '#runtime/process/watchdog';
import type { VerifyContext, VerifierHeartbeats } from './context.js';
import { extendVerifiedPrefix } from './verified-prefix.js';
import { scrub } from './scrub.js';
import { scanExpiries } from './expiries.js';

export interface VerifierOptions {
  /** Initial number of leaves per pass. */
  batch: number;
  /** Limit of leaves per pass, which double during a backlog to spread a pass's fixed cost. */
  maxBatch: number;
  /** Milliseconds after a pass that found less than a batch, so that small passes do not add up. */
  idleMs: number;
  /** Milliseconds between expiry scans. */
  expiryScanMs: number;
  /** Milliseconds between scrub passes. */
  scrubMs: number;
  /** Leaves per scrub pass. */
  scrubBatch: number;
  /** Milliseconds after which an unfinished pass rejects the run. */
  stallTimeoutMs: number;
}

export const VERIFIER_DEFAULTS: VerifierOptions = {
  batch: 1000,
  maxBatch: 4000,
  idleMs: 200,
  expiryScanMs: 500,
  scrubMs: 1000,
  scrubBatch: 200,
  // A pass takes a handful of statements with a timeout of 30 s each.
  stallTimeoutMs: 300_000,
};

/**
 * Verifies until the signal: extends the verified prefix, scans for expiries, then scrubs. An error
 * ends only the pass in which it occurs; its leaves stay unverified until a pass succeeds. Rejects
 * with a HungError when a pass does not end.
 */
export async function runVerifier(
  context: VerifyContext,
  signal: AbortSignal,
  options: VerifierOptions = VERIFIER_DEFAULTS,
): Promise<void> {
  let watchdog: Watchdog | undefined;
  const hung = new Promise<never>((_, onHung) => {
    watchdog = new Watchdog({
      what: 'a pass of the verifier',
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
    const batch = limit;
    const covered = await runPass(context, 'log', () => extendVerifiedPrefix(context, batch));
    limit = covered === batch ? Math.min(2 * limit, options.maxBatch) : options.batch;
    if (performance.now() >= upkeepDue) {
      await runPass(context, 'expiryScan', () =>
        scanExpiries(context, options.batch, covered !== null),
      );
      upkeepDue = performance.now() + options.expiryScanMs;
    }
    if (urgent || performance.now() >= scrubDue) {
      const count: number = urgent ? options.batch : options.scrubBatch;
      const scrubbed = await runPass(context, 'scrub', () => scrub(context, count));
      urgent = scrubbed?.urgent ?? false;
      scrubDue = performance.now() + options.scrubMs;
    }
    if ((covered ?? 0) < batch && !urgent) {
      await sleep(options.idleMs, undefined, { signal }).catch(() => null);
    }
  }
  context.voided.report(context.log);
}

type Watched = VerifyContext & { watchdog: Watchdog | undefined };

async function runPass<T>(
  context: Watched,
  pass: keyof VerifierHeartbeats,
  work: () => Promise<T>,
): Promise<T | null> {
  context.watchdog?.began();
  try {
    const result = await work();
    context.pulses?.[pass].success();
    return result;
  } catch (error) {
    context.pulses?.[pass].failed();
    const message = error instanceof Error ? error.message : String(error);
    if (
      message !== context.lastFailure?.message ||
      performance.now() - context.lastFailure.at > 10_000
    ) {
      context.lastFailure = { message, at: performance.now() };
      context.log.error({ err: error }, 'verifier: a pass failed; it is retried');
    }
    return null;
  } finally {
    context.watchdog?.ended();
  }
}
