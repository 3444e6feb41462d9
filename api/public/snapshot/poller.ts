import { equalBytes } from '#protocol/bytes';
import { verifyConsistency } from '#protocol/merkle';
import { openLocation, type OpenedLocation } from '#protocol/snapshot/location';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import { consistencyFromTiles } from '#protocol/tiles';
import { formatTime } from '#protocol/time';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import type { Clock } from '#runtime/clock';
import type { Logger } from '#runtime/process/log';
import { Problem } from '../http/problem.js';
import { PageReader, type PageMemory, Snapshot } from './snapshot.js';
import { tileReader, type SnapshotSource } from './source.js';

/** Thrown while no snapshot is published, which is expected until the first snapshot, and later a failure of the origin. */
class NoLocationError extends Error {}

export interface PollerOptions {
  source: SnapshotSource;
  trust: PinnedKeys;
  pageMemory?: PageMemory | undefined;
  clock: Clock;
  log: Logger;
  /** Called with each snapshot that the server begins to serve; must not reject. */
  onNewer?: (snapshot: Snapshot) => Promise<unknown>;
}

const MAX_BACKOFF_MS = 2_000;
/** How long the poller polls faster after a new snapshot, because the next one may follow soon. */
const BUSY_MS = 1_000;

/** When a newer snapshot is invalid, the last valid one is served until it expires. */
export class SnapshotPoller {
  current: Snapshot | null = null;
  /** Why the newest snapshot is not served, as `refusal` in `/readyz`; null if it is served. */
  rejection: string | null = null;
  private isFailing = false;
  private unusable: ReturnType<Snapshot['unusableAt']> = null;
  private readonly pages: PageReader;
  private timer: NodeJS.Timeout | undefined;
  private running = false;
  private changedAt = -Infinity;
  private refreshing = Promise.resolve();

  constructor(private readonly options: PollerOptions) {
    this.pages = new PageReader(options.source, options.pageMemory);
  }

  /**
   * Polls, and never rejects. One poll runs at a time: a slow poll could otherwise replace a newer snapshot with an
   * older snapshot.
   */
  refresh(): Promise<void> {
    this.refreshing = this.refreshing.then(() => this.refreshOnce());
    return this.refreshing;
  }

  /** @param busyIntervalMs the interval of polls during the second after each new snapshot */
  async start(intervalMs: number, busyIntervalMs = intervalMs): Promise<void> {
    this.running = true;
    await this.refresh();
    let pauseMs = intervalMs;
    const again = (): void => {
      if (!this.running) return;
      const isBusy = performance.now() - this.changedAt < BUSY_MS;
      // Back off: failing polls may transfer much data, and a recovering origin must not be flooded.
      if (this.isFailing) pauseMs = Math.min(2 * pauseMs, Math.max(intervalMs, MAX_BACKOFF_MS));
      else pauseMs = isBusy ? busyIntervalMs : intervalMs;
      this.timer = setTimeout(() => void this.refresh().then(again), pauseMs);
      this.timer.unref();
    };
    again();
  }

  stop(): void {
    this.running = false;
    clearTimeout(this.timer);
  }

  private async refreshOnce(): Promise<void> {
    try {
      const next = await this.next();
      if (next !== null) {
        this.current = next;
        this.changedAt = performance.now();
        // Not awaited: a slow origin must not delay the next poll.
        void this.options.onNewer?.(next);
      }
      if (this.rejection !== null) this.options.log.info('snapshot poll: recovered');
      this.rejection = null;
      this.isFailing = false;
    } catch (error) {
      this.isFailing = this.current !== null || !(error instanceof NoLocationError);
      const problem = error instanceof Error ? error.message : String(error);
      // Log each problem once, not with every poll.
      if (problem !== this.rejection) {
        if (this.isFailing)
          this.options.log.error({ err: error }, 'snapshot poll: newest snapshot rejected');
        else this.options.log.info(`snapshot poll: ${problem}`);
      }
      this.rejection = problem;
    }
    this.logExpiry();
  }

  /** Logs each change once: while the snapshot is unusable, every lookup gets a 503. */
  private logExpiry(): void {
    const { clock, log } = this.options;
    const { current: served, unusable } = this;
    this.unusable = served && served.unusableAt(clock.now());
    if (this.unusable === unusable || served === null) return;
    const times = { issued_at: served.entry.time, valid_until: formatTime(served.validUntil) };
    if (this.unusable === null)
      log.info(times, 'snapshot valid again: lookups answer with verdicts');
    else if (this.unusable === 'expired')
      log.error(times, 'snapshot expired: lookups answer 503 until a newer snapshot arrives');
    else
      log.error(
        times,
        'snapshot is of a future time: lookups answer 503 until the wrong clock is corrected',
      );
  }

  /** Loads the newest snapshot, or returns null when the server already serves it. */
  private async next(): Promise<Snapshot | null> {
    const { source, trust } = this.options;
    const { current: served } = this;
    const bytes = await source.location();
    if (bytes === null) throw new NoLocationError('no snapshot is published');
    if (served !== null && equalBytes(bytes, served.bytes)) return null;
    const opened = openLocation(nativeCrypto, bytes, trust);
    if (served !== null) await this.requireSuccessor(served.opened, opened);
    return Snapshot.load(this.pages, bytes, opened);
  }

  private async requireSuccessor(served: OpenedLocation, next: OpenedLocation): Promise<void> {
    if (next.index <= served.index) {
      throw new Error(
        `the snapshot at index ${next.index} is not newer than the one at ${served.index}, which was served already`,
      );
    }
    const [from, to] = [served.checkpoint, next.checkpoint];
    const { source } = this.options;
    const urgent = tileReader({ logFile: (file) => source.logFile(file, true) });
    const path = await consistencyFromTiles(nativeSha256, from.size, to.size, urgent);
    const consistent = verifyConsistency(nativeSha256, {
      size1: from.size,
      root1: from.root,
      size2: to.size,
      root2: to.root,
      path,
    });
    if (!consistent) {
      throw new Error(
        `the log of ${to.size} leaves does not extend the served log of ${from.size} leaves`,
      );
    }
  }
}

/** The served snapshot, even when expired: use it only for data that never changes, such as the log. */
export function loadedSnapshot({ poller }: { poller: SnapshotPoller }): Snapshot {
  if (poller.current !== null) return poller.current;
  throw new Problem('snapshot_missing', 'No snapshot has been published yet. Retry later.', {
    headers: { 'Retry-After': '2' },
  });
}

/** The served snapshot for verdicts. Throws while `unusableAt` gives a reason. */
export function currentValidSnapshot(ctx: { poller: SnapshotPoller; clock: Clock }): Snapshot {
  const snapshot = loadedSnapshot(ctx);
  const unusable = snapshot.unusableAt(ctx.clock.now());
  if (unusable === null) return snapshot;
  const detail =
    unusable === 'expired'
      ? `The newest snapshot was valid until ${formatTime(snapshot.validUntil)}; a newer one has not arrived yet.`
      : `The newest snapshot is of ${snapshot.entry.time}, far in the future: a clock of the service is wrong.`;
  throw new Problem('snapshot_expired', detail, { headers: { 'Retry-After': '10' } });
}
