import { setTimeout as sleep } from 'node:timers/promises';
import { logRarely } from '#runtime/process/log';
import { Watchdog } from '#runtime/ops/health';
import { verifierWork } from '#sql/log/verdicts';
import type { VerifyContext, VerifierHeartbeats } from './context.js';
import { extendVerifiedPrefix } from './verified-prefix.js';
import { scrub } from './scrub.js';
import { scanExpiries } from './expiries.js';
import { appendVerdictEntry, type VerdictResult } from './verdict-entries.js';

/** The scrubber checks the whole log again in this time, if `scrubBatch` allows. */
const SCRUB_LOG_MS = 3_600_000;
const LEAST_SCRUBBED = 20;
/** If a pass would scrub fewer leaves than this, the pause is longer, because each scrub pass has a fixed cost. */
const ENOUGH_SCRUBBED = 100;
/** The longest pause between scrub passes of a small log, in multiples of `scrubMs`. */
const LONGEST_PAUSE = 4;
/**
 * How often an idle verifier runs its passes, except the scrubber, per `SNAPSHOT_TTL`. A verdict entry is due
 * after half of `SNAPSHOT_TTL`.
 */
const PASSES_PER_SNAPSHOT = 20;
/** The longest pause between the passes of an idle verifier, except those of the scrubber. */
const LONGEST_IDLE_MS = 60_000;
/** The time constant of the average rate. */
const RATE_MS = 1000;

export const VERIFIER_DEFAULTS = {
  /** Initial number of leaves per pass. */
  batch: 1000,
  /** Maximum number of leaves per pass. The number doubles during a backlog, to spread a pass's fixed cost. */
  maxBatch: 4000,
  /** A log is busy while this verifier checks more new leaves per second than this number, and has no backlog. */
  busyRate: 500,
  /**
   * Minimum milliseconds between two verdict entries, in a busy log and otherwise. An entry and its snapshot
   * have a fixed cost, which is high for a few proofs and delays the leaves in a backlog.
   */
  busyIntervalMs: 500,
  intervalMs: 1500,
  /**
   * Pause after a pass that found fewer leaves than its limit, in milliseconds; shorter before a verdict entry of a
   * busy log.
   */
  idleMs: 200,
  /** Longest pause before a verdict entry of a log that is not busy. */
  quietMs: 500,
  /** Longest sleep without a notification, in milliseconds. */
  pollMs: 1000,
  expiryScanMs: 1000,
  /** Milliseconds between scrub passes; up to four times as many for a small log. */
  scrubMs: 2000,
  /** Maximum number of leaves per scrub pass without urgent leaves; a small log is scrubbed about once an hour. */
  scrubBatch: 400,
  /**
   * If a pass takes longer than this, in milliseconds, `runVerifier` rejects. A pass takes a handful of
   * statements with a timeout of 30 s each.
   */
  stallTimeoutMs: 300_000,
};

type VerifierOptions = typeof VERIFIER_DEFAULTS;

/**
 * Until the signal aborts, extends the verified prefix, scans for expiries, appends a verdict entry
 * if one is due, and scrubs. An error ends only the pass in which it occurs; its leaves stay
 * unverified until a pass succeeds. Rejects with a StallError when a pass does not end.
 */
export async function runVerifier(
  context: VerifyContext,
  signal: AbortSignal,
  options: VerifierOptions = VERIFIER_DEFAULTS,
): Promise<void> {
  let watchdog: Watchdog | undefined;
  const stalled = new Promise<never>((_, onStall) => {
    watchdog = new Watchdog({
      task: 'a pass of the verifier',
      limitMs: options.stallTimeoutMs,
      onStall,
    });
  });
  try {
    await Promise.race([new VerifierLoop({ ...context, watchdog }, options).run(signal), stalled]);
  } finally {
    watchdog?.stop();
  }
}

type Watched = VerifyContext & { watchdog: Watchdog | undefined };

/**
 * Runs the passes of a verifier one after the other, each when it is due. Times are results of
 * `performance.now()`.
 */
class VerifierLoop {
  /** Leaves of the next pass over the log. */
  private limit: number;
  /**
   * When this process last saw a change that no verdict entry covers, or null. Not null at first,
   * because an earlier process may have ended before it appended an entry.
   */
  private uncovered: number | null = performance.now();
  private scanBegan = 0;
  private scanDue = 0;
  private verdictDue = 0;
  private verdictAppended = -Infinity;
  private prefixEnded = 0;
  /** The average of verified leaves per second. */
  private rate = 0;
  private isBusy = false;
  private scrubDue = 0;
  private isScrubUrgent = false;
  private logSize = 0;
  /** While `verifierWork` returns the state `work`, no pass is needed before `until`. */
  private idle: { work: string | null; until: number } = { work: null, until: 0 };

  constructor(
    private readonly context: Watched,
    private readonly options: VerifierOptions,
  ) {
    this.limit = options.batch;
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) await this.runDuePasses(signal);
    this.context.voided.report(this.context.log);
  }

  private async runDuePasses(signal: AbortSignal): Promise<void> {
    const { context, options } = this;
    const found = await verifierWork(context.sql).catch(() => null);
    const work = found?.state ?? null;
    this.isScrubUrgent ||= found?.isUrgent === true;
    if (this.isIdle(work)) {
      // The query has shown that these passes have nothing to do.
      for (const pass of ['log', 'expiryScan', 'verdict'] as const)
        context.heartbeats?.[pass].success();
      if (performance.now() >= this.scrubDue) await this.scrub();
      else await (context.idleSleep?.sleep(options.pollMs, signal) ?? sleep(options.idleMs));
      return;
    }
    const { limit } = this;
    const verified = await this.extendPrefix();
    if (performance.now() >= this.scanDue) await this.scan(verified !== null);
    const reported = await this.report(this.uncovered !== null || work !== this.idle.work);
    if (this.isScrubUrgent || performance.now() >= this.scrubDue) await this.scrub();

    this.idle = this.idleAfter(reported, work);
    if (verified === limit || this.isScrubUrgent) return;
    const pause = this.pause();
    await sleep(pause, undefined, { signal }).catch(() => null);
    if (reported === 'early') return;
    await context.idleSleep?.sleep(options.pollMs - pause, signal);
  }

  /**
   * Milliseconds until the next pass. A pass just before the next entry is due lets the entry cover the most leaves.
   */
  private pause(): number {
    const { idleMs, quietMs } = this.options;
    const untilEntry = this.verdictAppended + this.interval() - performance.now();
    if (untilEntry <= 0) return idleMs;
    return this.isBusy
      ? Math.min(Math.max(untilEntry, idleMs / 4), idleMs)
      : Math.min(Math.max(untilEntry, idleMs), quietMs);
  }

  private interval(): number {
    return this.isBusy ? this.options.busyIntervalMs : this.options.intervalMs;
  }

  private isIdle(work: string | null): boolean {
    const isUnchanged = this.uncovered === null && work !== null && work === this.idle.work;
    return isUnchanged && performance.now() < this.idle.until;
  }

  /** @param work the state of the registry before the passes */
  private idleAfter(reported: VerdictResult | null, work: string | null): VerifierLoop['idle'] {
    const isReported = reported === 'appended' || reported === 'none';
    const isDone = this.uncovered === null && isReported && !this.isScrubUrgent;
    const pause = (this.context.signer?.snapshotTtl ?? 0) / PASSES_PER_SNAPSHOT;
    const until = performance.now() + Math.min(pause, LONGEST_IDLE_MS);
    return { work: isDone ? work : null, until };
  }

  private changed(): void {
    this.uncovered = performance.now();
  }

  /** Returns the number of leaves, or null when the pass failed. */
  private async extendPrefix(): Promise<number | null> {
    const { context, options, limit } = this;
    const verified = await runPass(context, 'log', () => extendVerifiedPrefix(context, limit));
    const elapsed = Math.max(performance.now() - this.prefixEnded, 1);
    const kept = Math.exp(-elapsed / RATE_MS);
    this.rate = kept * this.rate + ((1 - kept) * 1000 * (verified ?? 0)) / elapsed;
    this.prefixEnded += elapsed;
    this.isBusy = this.rate > options.busyRate && verified !== limit;
    this.limit = verified === limit ? Math.min(2 * limit, options.maxBatch) : options.batch;
    if (verified !== 0) this.changed();
    return verified;
  }

  private async scan(isCurrent: boolean): Promise<void> {
    const { context, options } = this;
    this.scanBegan = performance.now();
    const recorded = await runPass(context, 'expiryScan', () =>
      scanExpiries(context, options.batch, isCurrent),
    );
    if (recorded !== false) this.changed();
    this.scanDue = performance.now() + options.expiryScanMs;
  }

  /** Appends a verdict entry if one is due. Returns null when the pass failed. */
  private async report(hasChanged: boolean): Promise<VerdictResult | null> {
    const { context } = this;
    const { signer } = context;
    if (signer === undefined) return 'none';
    const interval = this.interval();
    if (hasChanged && performance.now() < this.verdictAppended + interval) return 'early';
    if (!hasChanged && performance.now() < this.verdictDue) return 'none';
    const result = await runPass(context, 'verdict', () =>
      appendVerdictEntry(context, signer, hasChanged, {
        published: interval,
        unpublished: this.options.intervalMs,
      }),
    );
    if (result === 'appended') this.verdictAppended = performance.now();
    // A change may be newer than the scan that the entry reports; only a later scan covers such a change.
    const isScanned = this.uncovered !== null && this.scanBegan > this.uncovered;
    if ((result === 'appended' || result === 'none') && isScanned) this.uncovered = null;
    this.verdictDue = performance.now() + this.options.expiryScanMs;
    return result;
  }

  private async scrub(): Promise<void> {
    const { context, options } = this;
    const enoughAfter = (ENOUGH_SCRUBBED * SCRUB_LOG_MS) / this.logSize;
    const longest = LONGEST_PAUSE * options.scrubMs;
    const pause = Math.min(Math.max(enoughAfter, options.scrubMs), longest);
    const perPass = Math.max(LEAST_SCRUBBED, Math.ceil((this.logSize * pause) / SCRUB_LOG_MS));
    const count = this.isScrubUrgent ? options.batch : Math.min(perPass, options.scrubBatch);
    const scrubbed = await runPass(context, 'scrub', () => scrub(context, count));
    if (scrubbed?.changed !== 0) this.changed();
    this.isScrubUrgent = scrubbed?.urgent ?? false;
    this.logSize = scrubbed?.size ?? this.logSize;
    this.scrubDue = performance.now() + (scrubbed === null ? options.scrubMs : pause);
  }
}

async function runPass<T>(
  context: Watched,
  pass: keyof VerifierHeartbeats,
  work: () => Promise<T>,
): Promise<T | null> {
  context.watchdog?.began();
  try {
    const result = await work();
    context.heartbeats?.[pass].success();
    return result;
  } catch (error) {
    context.heartbeats?.[pass].failed();
    logRarely(context.log, 'error', { err: error, pass }, 'verifier: a pass failed; it is retried');
    return null;
  } finally {
    context.watchdog?.ended();
  }
}
