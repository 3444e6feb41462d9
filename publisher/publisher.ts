import { isDeepStrictEqual } from 'node:util';
import { formatVkey, noteSigner, type LogVkey } from '#protocol/note';
import { type Signer, nativeSha256 } from '#runtime/crypto/node';
import { pinKeys } from '#protocol/snapshot/trust';
import { withLogKeys } from '#protocol/state/log-keys';
import { type Logger, logRarely } from '#runtime/process/log';
import type { CycleContext, PublisherSettings } from './context.js';
import { LeaseLostError, FatalPublishError, type StopCode, UnknownSignerError } from './errors.js';
import { trustedHead, SnapshotReader, SnapshotWriter, Janitor } from './store/published-files.js';
import { StoredMaps } from './store/maps.js';
import { DirectoryLease, Leadership, type Lease } from './registry/lease.js';
import { Cosigner, type CosignerOptions } from './cosigner.js';
import { DirectoryStore, type WriteStep } from '#runtime/store/directory';
import { type SnapshotStore, StoreError } from '#runtime/store/store';
import { type Replica, ReplicaUnusableError } from './registry/sql-registry.js';
import { runPublishCycle, type CycleReport } from './cycle.js';
import { setTimeout as sleep } from 'node:timers/promises';
import { createTask } from 'node-cron';
import { WakeableSleep } from '#runtime/concurrency';
import { Heartbeat, type Readiness, Watchdog } from '#runtime/ops/health';

export interface PublisherContext extends PublisherSettings {
  replica?: Replica;
  directory: string | SnapshotStore;
  /** Name of the log, and first line of its checkpoints. */
  origin: string;
  logKey: Signer;
  /** The keys that the log names. Signatures by them are accepted, but only `logKey` signs. */
  logged?: readonly LogVkey[];
  log: Logger;
  /** `TRUSTED_CHECKPOINT`: the publisher signs only trees that extend it. */
  trustedCheckpoint?: string;
  /** Requests cosignatures of a policy's witnesses for each checkpoint. */
  witnesses?: Pick<CosignerOptions, 'policy' | 'onAnswer'>;
  /** Leases besides the lease on the directory. */
  leases?: Lease[];
  /** For tests: makes writes fail. */
  step?: WriteStep;
  /** For tests: leaves processed at once, a multiple of 256. */
  chunkLeaves?: number;
  /** For tests: the parameter `mostLeaves` of `reduce`. */
  mostLeaves?: number;
}

export type Publisher = ReturnType<typeof createPublisher>;

const CHUNK_LEAVES = 8192;

export function createPublisher(options: PublisherContext) {
  const { origin, logKey, replica = null, log, monotonic, witnesses } = options;
  const own = pinKeys(nativeSha256, [formatVkey(nativeSha256, origin, logKey.publicKey)]);
  const logKeys = withLogKeys(own, options.logged ?? []);
  const store =
    typeof options.directory === 'string'
      ? new DirectoryStore(options.directory, options.step)
      : options.directory;
  const reader = new SnapshotReader(store, logKeys);
  let steps = 0;
  const progress = (): void => {
    steps += 1;
  };
  const janitor = new Janitor(store, progress);
  const leases = [...(options.leases ?? [])];
  if (store.directory !== null) leases.push(new DirectoryLease(store.directory, log));
  const leadership = new Leadership(leases);
  const writer = new SnapshotWriter(store, async () => {
    await leadership.require();
    // After a failover, publishers on the old and on the new primary can both hold a lease.
    if (((await reader.checkpoint())?.note ?? null) !== ctx.memory.note)
      throw new LeaseLostError('another publisher replaced the checkpoint');
  });
  const cosigner =
    witnesses === undefined
      ? null
      : new Cosigner({ ...witnesses, reader, writer, leadership, monotonic, log });
  const ctx: CycleContext = {
    ...options,
    primary: options.registry,
    replica,
    reader,
    writer,
    cosigner,
    maps: new StoredMaps(reader, writer, janitor),
    janitor,
    leadership,
    logSigner: noteSigner(nativeSha256, origin, logKey),
    logKeys,
    memory: {
      note: null,
      head: trustedHead(options.trustedCheckpoint, logKeys),
      tree: null,
      progress: null,
      published: null,
      appended: new Map(),
    },
    chunkLeaves: options.chunkLeaves ?? CHUNK_LEAVES,
    progress,
  };
  return {
    logKeys,
    /** Whether this publisher held every lease at the last check. */
    isLeader: (): boolean => leadership.isLeading,
    runCycle: (): Promise<CycleReport> => runPublishCycle(ctx),
    /** Whether the last cycle published the registry's latest verdict, snapshot entry and share change. */
    isCurrent: async (): Promise<boolean> => {
      const { published } = ctx.memory;
      if (published === null || !leadership.isLeading) return false;
      return isDeepStrictEqual(await ctx.registry.latestInputs(), published);
    },
    /** Releases the leases; a later cycle takes them again. To be called between cycles. */
    close: async (): Promise<void> => {
      await cosigner?.stop();
      await leadership.release();
    },
    /** See {@link Cosigner.quorumAgeMs}; 0 without witnesses, because no witness can be late. */
    quorumAgeMs: (): number => cosigner?.quorumAgeMs ?? 0,
    /** A counter that changes while a cycle makes progress. */
    progress: (): number => steps + writer.filesWritten,
    /** What this publisher has written since its process started. */
    written: () => ({ bytes: writer.bytesWritten, files: writer.filesWritten }),
  };
}

const EVERY_SECOND = '* * * * * *';
/** The longest pause between cycles, needed when the schedule stops because the clock was set back. */
const LONGEST_PAUSE_MS = 3_000;
/** A cycle reports progress after each statement or request, none of which takes this long. */
const STALL_TIMEOUT_MS = 120_000;
/** Consecutive failed cycles after which a publisher releases its leases to another publisher. */
const MAX_FAILED_CYCLES = 3;
/** Cycles that the publisher skips after it released its leases: a standby, which tries every second, can take them. */
const SKIPPED_CYCLES = 3;

export interface CycleObserver {
  went(report: CycleReport, ms: number): void;
  failed?(error: unknown, ms: number): void;
}

export interface RunOptions {
  signal: AbortSignal;
  log: Logger;
  watch?: CycleObserver;
  /** If a cycle makes no progress for this long, in milliseconds, `runPublisher` rejects. */
  stallTimeoutMs?: number;
  /** Sleeps between cycles, woken when a verdict entry was appended. */
  betweenCycles?: WakeableSleep;
  /** Milliseconds between complete cycles while the snapshot is current; default: all are complete. */
  idleMs?: number;
  /** Minimum milliseconds between the end of a cycle that published and the next cycle; default: 0. */
  leastPauseMs?: number;
}

/**
 * Runs one publish cycle after another until the signal aborts: the first immediately, the others when woken and every
 * second. Resolves after the last cycle, with the leases released. Rejects with a FatalPublishError when an operator
 * has to decide, and with a StallError when a cycle stalls. The next cycle retries after any other
 * error; after several failed cycles in a row a standby can take the leases.
 */
export async function runPublisher(publisher: Publisher, options: RunOptions): Promise<void> {
  const { signal, log, watch, stallTimeoutMs = STALL_TIMEOUT_MS, idleMs = 0 } = options;
  const { betweenCycles = new WakeableSleep(), leastPauseMs = 0 } = options;
  const cycleLog = new CycleLog(log);
  let giveUp: (error: Error) => void = () => undefined;
  const stalled = new Promise<never>((_, reject) => {
    giveUp = reject;
  });
  const watchdog = new Watchdog({
    task: 'a publish cycle',
    limitMs: stallTimeoutMs,
    progress: () => publisher.progress(),
    onStall: giveUp,
  });

  let failedCycles = 0;
  let cyclesToSkip = 0;
  const countFailure = async (error: unknown): Promise<void> => {
    failedCycles += 1;
    if (failedCycles < MAX_FAILED_CYCLES) return;
    failedCycles = 0;
    cyclesToSkip = SKIPPED_CYCLES;
    cycleLog.stepDown(error);
    await publisher.close().catch((cause: unknown) => cycleLog.failed(cause));
  };

  let nextCycleDue = 0;
  let fullCycleDue = 0;
  let generation = 0;
  const nextReport = async (): Promise<CycleReport> => {
    if (performance.now() < fullCycleDue && (await publisher.isCurrent()))
      return { outcome: 'unchanged', generation };
    const report = await publisher.runCycle();
    if ('generation' in report) ({ generation } = report);
    fullCycleDue = performance.now() + idleMs;
    return report;
  };
  const runCycle = async (): Promise<void> => {
    if (cyclesToSkip > 0) {
      cyclesToSkip -= 1;
      return;
    }
    watchdog.began();
    const startedAt = performance.now();
    const wasLeader = publisher.isLeader();
    try {
      const report = await nextReport();
      failedCycles = 0;
      if (report.outcome === 'published') nextCycleDue = performance.now() + leastPauseMs;
      watch?.went(report, performance.now() - startedAt);
      cycleLog.completed(report);
    } catch (error) {
      watch?.failed?.(error, performance.now() - startedAt);
      if (error instanceof FatalPublishError) throw error;
      cycleLog.failed(error);
      const isLeader = wasLeader || publisher.isLeader();
      if (isLeader && !(error instanceof LeaseLostError)) await countFailure(error);
    } finally {
      cycleLog.leads(publisher.isLeader());
      watchdog.ended();
    }
  };
  const runCycles = async (): Promise<void> => {
    try {
      while (!signal.aborted) {
        await runCycle();
        await betweenCycles.sleep(LONGEST_PAUSE_MS, signal);
        const early = nextCycleDue - performance.now();
        if (early > 0) await sleep(early, undefined, { signal }).catch(() => undefined);
      }
    } finally {
      await publisher.close();
      cycleLog.leads(false);
    }
  };
  const schedule = createTask(EVERY_SECOND, () => betweenCycles.wake(), {
    // A cycle may take longer than a second: node-cron would warn of every second without a run.
    suppressMissedWarning: true,
  });
  void schedule.start();
  try {
    // A stalled cycle is abandoned: the process exits, and its connection releases the lease.
    await Promise.race([runCycles(), stalled]);
  } finally {
    void schedule.destroy();
    watchdog.stop();
  }
}

/** Logs changes of a cycle's outcome, not every repetition. */
class CycleLog {
  private outcome = '';
  private hasFailed = false;
  private hasSteppedDown = false;
  private isLeader = false;

  constructor(private readonly log: Logger) {}

  leads(isLeader: boolean): void {
    if (isLeader === this.isLeader) return;
    this.isLeader = isLeader;
    this.log.info(
      isLeader
        ? 'publisher: this process holds the lease now'
        : 'publisher: this process no longer holds the lease',
    );
  }

  completed(report: CycleReport): void {
    const outcome = report.outcome === 'unchanged' ? 'published' : report.outcome;
    if (this.hasFailed && outcome === 'published')
      this.log.info('publisher: publish cycles succeed again');
    this.hasFailed = false;
    this.hasSteppedDown = false;
    const isChange =
      report.outcome === 'published' && report.changedRecords + report.shareChanges > 0;
    if (outcome !== this.outcome || isChange) {
      const level = outcome === 'verifier_silent' ? 'warn' : 'info';
      this.log[level](fieldsOf(report), MESSAGES[report.outcome]);
    }
    this.outcome = outcome;
  }

  failed(error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    if (error instanceof LeaseLostError) this.log.warn(message);
    else if (error instanceof ReplicaUnusableError)
      logRarely(this.log, 'warn', {}, `publisher: nothing was published: ${message}`);
    else {
      // Cycles that fail for the same reason may name different files, so the text names none.
      const { code, constructor, name } = error as NodeJS.ErrnoException;
      const reason = code ?? (name === 'Error' ? constructor.name : name);
      const text = `publisher: the cycle failed (${reason}); nothing was published`;
      logRarely(this.log, 'error', { err: error }, text);
    }
    this.hasFailed = true;
  }

  stepDown(error: unknown): void {
    if (this.hasSteppedDown) return;
    this.hasSteppedDown = true;
    const counts = { failed_cycles: MAX_FAILED_CYCLES, skipped_cycles: SKIPPED_CYCLES };
    this.log.error(
      { err: error, ...counts },
      'publisher: cycles keep failing; this publisher releases its leases so that a standby can publish',
    );
  }
}

const MESSAGES = {
  published: 'publisher: snapshot published',
  standby: 'publisher: another publisher holds the lease; this publisher is the standby',
  waiting: 'publisher: the log has no verdict entry yet; waiting',
  unchanged: 'publisher: the published snapshot is current',
  verifier_silent:
    'publisher: the last verdict entry covers expiries up to a time that is older than SNAPSHOT_TTL; nothing is published until the verifier appends another entry',
} as const;

function fieldsOf(report: CycleReport): object {
  if (report.outcome !== 'published') return report;
  const { outcome, generation, treeSize, newLeaves, changedRecords, shareChanges } = report;
  return {
    outcome,
    generation,
    tree_size: treeSize,
    new_leaves: newLeaves,
    changed_records: changedRecords,
    share_changes: shareChanges,
  };
}

/** Cycles start every second. A cycle that publishes a large backlog may exceed this. */
const STALLED_MS = 10_000;

/**
 * Ready as leader or standby when the last cycle succeeded recently and the verifier's expiry scans
 * allow publishing. `unknown_signer` is the key that this publisher lacks; `store` is `down` when the
 * last cycle could not use the bucket.
 */
export function publisherReadiness(): Required<CycleObserver> & { find(): Readiness } {
  const cycles = new Heartbeat(STALLED_MS);
  let outcome: CycleReport['outcome'] | null = null;
  let unknownSigner: string | null = null;
  let currentAt: number | null = null;
  let stopCode: StopCode | null = null;
  let isStoreDown = false;
  return {
    went: (report) => {
      outcome = report.outcome;
      unknownSigner = null;
      isStoreDown = false;
      // `unchanged`: an idle log needs no new snapshot for minutes, so the published snapshot is current.
      if (outcome === 'published' || outcome === 'unchanged') currentAt = performance.now();
      cycles.success();
    },
    failed: (error) => {
      unknownSigner = error instanceof UnknownSignerError ? error.key : null;
      isStoreDown = error instanceof StoreError;
      const isLost = error instanceof LeaseLostError;
      // Another publisher holds the leases, or this publisher must not take them.
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
          ...(isStoreDown && { store: 'down' }),
          ...(unknownSigner === null ? {} : { unknown_signer: unknownSigner }),
          published_ms_ago: currentAt === null ? null : Math.round(performance.now() - currentAt),
          ...(stopCode !== null && { refused: stopCode }),
        },
      };
    },
  };
}
