import { createTask } from 'node-cron';
import type { Logger } from '#runtime/process/log';
import { Watchdog } from '#runtime/process/watchdog';
import type { Publisher } from './publisher.js';
import { ReplicaUnfit } from './registry/replica.js';
import { LeaseLostError, FatalPublishError } from './errors.js';
import type { CycleReport } from './cycle.js';

const EVERY_SECOND = '* * * * * *';
const LOOK_EVERY_MS = 1_000;
/** Longer than from one tick to the next by any clock that goes on. */
const SILENT_MS = 3_000;
/** Longer than any statement or file of a tick may take: a tick itself may take long, but it goes on. */
const HUNG_MS = 120_000;
/** Consecutive failed cycles after which a publisher lets another one lead. */
const MAX_FAILED_CYCLES = 3;
/** Cycles that it then skips: a standby tries to lead once a second. */
const SKIPPED_CYCLES = 3;

/** Learns how ticks go: for readiness and metrics. */
export interface CycleObserver {
  went(report: CycleReport, ms: number): void;
  failed(error: unknown, ms: number): void;
}

export interface RunOptions {
  signal: AbortSignal;
  log: Logger;
  /** Told how each tick went. */
  watch?: CycleObserver;
  /** Without a step for so long, a tick is given up, and the run with it. */
  stallTimeoutMs?: number;
}

/**
 * Ticks at once and then every second, never two at a time, until the signal. Resolves when the
 * last tick is over and the leadership given back; rejects when a tick says that a person has to
 * decide, or, with a HungError and at once, when a tick does not go on. Every other fault is the
 * next tick's to repair; after several failed ticks in a row a standby gets its chance to lead.
 */
export async function runPublisher(publisher: Publisher, options: RunOptions): Promise<void> {
  const { signal, log, watch, stallTimeoutMs = HUNG_MS } = options;
  const reports = new Reports(log);
  let running: Promise<void> = Promise.resolve();
  let stop: (error?: FatalPublishError) => void = () => undefined;
  let giveUp: (error: Error) => void = () => undefined;
  const stopped = new Promise<FatalPublishError | undefined>((resolve) => {
    stop = resolve;
  });
  const hung = new Promise<never>((_, reject) => {
    giveUp = reject;
  });
  hung.catch(() => undefined);
  const watchdog = new Watchdog({
    what: 'a tick of the publisher',
    limitMs: stallTimeoutMs,
    progress: () => publisher.steps(),
    onHung: giveUp,
  });

  let failedCycles = 0;
  let cyclesToSkip = 0;
  const countFailure = async (error: unknown): Promise<void> => {
    failedCycles += 1;
    if (failedCycles < MAX_FAILED_CYCLES) return;
    failedCycles = 0;
    cyclesToSkip = SKIPPED_CYCLES;
    reports.stepDown(error);
    await publisher.close().catch((cause: unknown) => reports.trouble(cause));
  };

  let ticking = false;
  let lastEnd = performance.now();
  let renewing: Promise<unknown> = Promise.resolve();
  const tick = async (): Promise<void> => {
    if (signal.aborted) return;
    if (cyclesToSkip > 0) {
      cyclesToSkip -= 1;
      lastEnd = performance.now();
      return;
    }
    ticking = true;
    watchdog.began();
    const began = performance.now();
    const led = publisher.isLeader();
    try {
      const report = await publisher.runCycle();
      failedCycles = 0;
      watch?.went(report, performance.now() - began);
      reports.tell(report);
    } catch (error) {
      watch?.failed(error, performance.now() - began);
      if (error instanceof FatalPublishError) stop(error);
      else {
        reports.trouble(error);
        const isLeader = led || publisher.isLeader();
        if (isLeader && !(error instanceof LeaseLostError)) await countFailure(error);
      }
    } finally {
      ticking = false;
      watchdog.ended();
      lastEnd = performance.now();
    }
  };
  // A late tick is no news: the next one publishes what it would have.
  const quiet = () => undefined;
  const task = createTask(EVERY_SECOND, () => (running = tick()), {
    noOverlap: true,
    suppressMissedWarning: true,
    logger: {
      info: quiet,
      warn: quiet,
      debug: quiet,
      error: (error) => log.error({ err: error }, 'the schedule failed'),
    },
  });
  const onAbort = (): void => stop();
  signal.addEventListener('abort', onAbort);
  running = tick();
  await Promise.race([running, hung]);
  await task.start();
  if (signal.aborted) stop();
  // The schedule is by the machine's clock. Where that is set back by an hour, the next tick would be an
  // hour away; time that only goes on sees that none comes.
  const looking = setInterval(() => {
    if (ticking || performance.now() - lastEnd < SILENT_MS) return;
    lastEnd = performance.now();
    log.warn('no tick came when one was due: the clock was set back, and the schedule begins anew');
    renewing = Promise.resolve(task.stop()).then(() => task.start());
  }, LOOK_EVERY_MS);
  try {
    const error = await Promise.race([stopped, hung]);
    clearInterval(looking);
    await renewing;
    await task.destroy();
    await Promise.race([running, hung]);
    await publisher.close();
    if (error !== undefined) throw error;
  } finally {
    clearInterval(looking);
    watchdog.stop();
    signal.removeEventListener('abort', onAbort);
    // What hangs is left behind: the program ends, and with it the connection that holds the claim.
    void task.destroy();
  }
}

/** Says what changes, not what repeats every second. */
class Reports {
  private outcome = '';
  private troubled = '';
  private hasSteppedDown = false;

  constructor(private readonly log: Logger) {}

  tell(report: CycleReport): void {
    const { outcome } = report;
    if (this.troubled !== '' && outcome === 'published') this.log.info('publishing again');
    this.troubled = '';
    this.hasSteppedDown = false;
    if (outcome === 'published') {
      const news = report.newProofs + report.changedRecords + report.grants;
      if (outcome !== this.outcome || news > 0) this.log.info(report, WORDS[outcome]);
    } else if (outcome !== this.outcome) {
      this.log[outcome === 'verifier_silent' ? 'warn' : 'info'](report, WORDS[outcome]);
    }
    this.outcome = report.outcome;
  }

  trouble(error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    if (error instanceof LeaseLostError) this.log.warn(message);
    else if (error instanceof ReplicaUnfit) {
      if (message !== this.troubled) this.log.warn(`nothing was published: ${message}`);
    } else if (message !== this.troubled) this.log.error({ err: error }, 'nothing was published');
    this.troubled = message;
  }

  stepDown(error: unknown): void {
    if (this.hasSteppedDown) return;
    this.hasSteppedDown = true;
    const counts = { failed_cycles: MAX_FAILED_CYCLES, skipped_cycles: SKIPPED_CYCLES };
    this.log.error(
      { err: error, ...counts },
      'publish cycles keep failing: this publisher gives up the lead, so that another one can publish',
    );
  }
}

const WORDS = {
  published: 'a snapshot is published',
  standby: 'another publisher leads; standing by',
  waiting: 'nothing is verified yet; waiting',
  verifier_silent:
    'the verifier has not looked for what is over for longer than SNAPSHOT_TTL, as far as the database that is read knows; nothing is published until it does',
} as const;
