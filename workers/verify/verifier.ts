import { setTimeout as sleep } from 'node:timers/promises';
import { logRarely } from '#runtime/process/log';
import { Watchdog } from '#runtime/process/watchdog';
import { verifierWork } from '#sql/log/verdicts';
import type { VerifyContext, VerifierHeartbeats } from './context.js';
import { extendVerifiedPrefix } from './verified-prefix.js';
import { scrub } from './scrub.js';
import { scanExpiries } from './expiries.js';
import { appendVerdictEntry, LEAST_INTERVAL_MS, type VerdictResult } from './verdict-entries.js';

export interface VerifierOptions {
  /** Initial number of leaves per pass. */
  batch: number;
  /** Limit of leaves per pass. Their number doubles during a backlog, to spread a pass's fixed cost. */
  maxBatch: number;
  /** Shortest pause after a pass that found less than a batch, in milliseconds. */
  idleMs: number;
  /** Longest sleep without a notification, in milliseconds. */
  pollMs: number;
  /** Milliseconds between expiry scans. */
  expiryScanMs: number;
  /** Milliseconds between scrub passes; up to 2.5 times as many for a small log. */
  scrubMs: number;
  /** Limit of leaves per scrub pass; a small log is scrubbed about once in an hour. */
  scrubBatch: number;
  /** Milliseconds after which an unfinished pass rejects the run. */
  stallTimeoutMs: number;
}

/** Number of passes in which the whole log is scrubbed once, if `scrubBatch` allows. */
const SCRUBS_PER_ROUND = 1_800;
/** The fewest leaves of a scrub pass. */
const LEAST_SCRUBBED = 10;
/** The longest pause between scrub passes of a small log, in multiples of `scrubMs`. */
const LONGEST_PAUSE = 2.5;
/** An idle verifier runs its passes this often per `SNAPSHOT_TTL`; an entry is due after half of it. */
const ROUNDS_PER_SNAPSHOT = 20;

export const VERIFIER_DEFAULTS: VerifierOptions = {
  batch: 1000,
  maxBatch: 4000,
  idleMs: 200,
  pollMs: 1000,
  expiryScanMs: 1000,
  scrubMs: 2000,
  scrubBatch: 400,
  // A pass takes a handful of statements with a timeout of 30 s each.
  stallTimeoutMs: 300_000,
};

/**
 * Verifies until the signal: extends the verified prefix, scans for expiries, appends a verdict entry
 * if one is due, then scrubs. An error ends only the pass in which it occurs; its leaves stay
 * unverified until a pass succeeds. Rejects with a HungError when a pass does not end.
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
  const { signer } = context;
  let upkeepDue = 0;
  let verdictDue = 0;
  let earliestEntry = 0;
  // Not -Infinity: an earlier process may have ended before it appended an entry.
  let changedAt = performance.now();
  let scanBegan = 0;
  let isEarly = false;
  let scrubDue = 0;
  let urgent = false;
  let size = 0;
  let limit = options.batch;
  /** State of the registry before a round without work: until `idleUntil`, an equal state means no work. */
  let done: string | null = null;
  let idleUntil = 0;
  while (!signal.aborted) {
    const isSettled = changedAt === -Infinity;
    const work: string | null = isSettled
      ? await verifierWork(context.sql).catch(() => null)
      : null;
    if (work !== null && work === done && performance.now() < idleUntil) {
      await (context.idleSleep?.sleep(options.pollMs, signal) ?? sleep(options.idleMs));
      continue;
    }
    const batch = limit;
    const covered = await runPass(context, 'log', () => extendVerifiedPrefix(context, batch));
    limit = covered === batch ? Math.min(2 * limit, options.maxBatch) : options.batch;
    if (covered !== 0) changedAt = performance.now();
    if (performance.now() >= upkeepDue) {
      scanBegan = performance.now();
      const recorded = await runPass(context, 'expiryScan', () =>
        scanExpiries(context, options.batch, covered !== null),
      );
      if (recorded !== false) changedAt = performance.now();
      upkeepDue = performance.now() + options.expiryScanMs;
    }
    const hasChanged: boolean = changedAt !== -Infinity || work !== done;
    let isSound = true;
    isEarly = hasChanged && performance.now() < earliestEntry;
    if (signer !== undefined && !isEarly && (hasChanged || performance.now() >= verdictDue)) {
      const result: VerdictResult | null = await runPass(context, 'verdict', () =>
        appendVerdictEntry(context, signer, hasChanged),
      );
      isEarly = result === 'early';
      isSound = result !== null;
      if (result === 'appended') earliestEntry = performance.now() + LEAST_INTERVAL_MS;
      // A change may be newer than the scan that the entry reports: only a later scan covers it.
      if ((result === 'appended' || result === 'none') && scanBegan > changedAt)
        changedAt = -Infinity;
      verdictDue = performance.now() + options.expiryScanMs;
    }
    if (urgent || performance.now() >= scrubDue) {
      const perPass = Math.min(
        Math.max(LEAST_SCRUBBED, size / SCRUBS_PER_ROUND),
        options.scrubBatch,
      );
      const count: number = urgent ? options.batch : Math.ceil(perPass);
      const scrubbed = await runPass(context, 'scrub', () => scrub(context, count));
      if (scrubbed?.changed !== 0) changedAt = performance.now();
      urgent = scrubbed?.urgent ?? false;
      size = scrubbed?.size ?? size;
      const pauses = (LEAST_SCRUBBED * SCRUBS_PER_ROUND) / size;
      scrubDue = performance.now() + options.scrubMs * Math.min(Math.max(pauses, 1), LONGEST_PAUSE);
    }
    done = changedAt === -Infinity && !isEarly && isSound && !urgent ? work : null;
    const ttl = signer?.snapshotTtl ?? 0;
    idleUntil = Math.min(scrubDue, performance.now() + ttl / ROUNDS_PER_SNAPSHOT);
    if ((covered ?? 0) < batch && !urgent) {
      await sleep(options.idleMs, undefined, { signal }).catch(() => null);
      if (!isEarly) await context.idleSleep?.sleep(options.pollMs - options.idleMs, signal);
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
    logRarely(context.log, 'error', { err: error, pass }, 'verifier: a pass failed; it is retried');
    return null;
  } finally {
    context.watchdog?.ended();
  }
}
