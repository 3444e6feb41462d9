import { equalBytes } from '#protocol/bytes';
import type { Ed25519Verify } from '#protocol/ed25519';
import type { Sha256 } from '#protocol/hash';
import { HASH_BYTES, verifyConsistency } from '#protocol/merkle';
import type { LoadedPart } from '#protocol/snapshot/find';
import { malformed } from '#protocol/snapshot/malformed';
import { openManifest, type OpenedManifest } from '#protocol/snapshot/manifest';
import type { SnapshotTrust } from '#protocol/snapshot/trust';
import { consistencyFromTiles } from '#protocol/tiles';
import type { Clock } from '#runtime/process/clock';
import type { Logger } from '#runtime/process/log';
import { readTile } from '../log/tiles.js';
import { Snapshot } from './snapshot.js';
import type { SnapshotSource } from './source.js';

/** There is no manifest, or a genuine one that is none to go over to from what was served. */
export class RefusedSnapshot extends Error {
  override readonly name = 'RefusedSnapshot';

  constructor(
    readonly code:
      'no_manifest' | 'older_generation' | 'same_generation' | 'smaller_tree' | 'forked_log',
    message: string,
  ) {
    super(message);
  }
}

export interface FollowerOptions {
  source: SnapshotSource;
  trust: SnapshotTrust;
  sha256: Sha256;
  verify: Ed25519Verify;
  clock: Clock;
  log: Logger;
}

/** While something is wrong, looking for a newer snapshot pauses for up to so long. */
const SLOWEST_MS = 2_000;

/**
 * Holds the snapshot that is served and goes over to newer ones. Whatever is wrong with a newer
 * one, the last good one stays: its age shows in the headers, and its own end ends it.
 */
export class SnapshotPoller {
  private served: Snapshot | null = null;
  private problem: string | null = null;
  private isFailing = false;
  private isOver = false;
  /** Parts of the served snapshot, and of one that has not come whole yet. */
  private readonly inHand = new Map<string, LoadedPart>();
  private timer: NodeJS.Timeout | undefined;
  private following = false;
  private refreshing = Promise.resolve();

  constructor(private readonly options: FollowerOptions) {}

  get current(): Snapshot | null {
    return this.served;
  }

  /** Why the newest manifest is not served; null when it is. */
  get refusal(): string | null {
    return this.problem;
  }

  /**
   * Looks for a newer snapshot once. Never rejects. One at a time: of two, the one that began first
   * could end last, and go back to the older snapshot that it found.
   */
  refresh(): Promise<void> {
    this.refreshing = this.refreshing.then(() => this.refreshAlone());
    return this.refreshing;
  }

  /** Refreshes now, and then again and again until `stop`. */
  async start(intervalMs: number): Promise<void> {
    this.following = true;
    await this.refresh();
    let pauseMs = intervalMs;
    const again = (): void => {
      if (!this.following) return;
      // What went wrong may be large, and an origin that comes back has many who wait for it.
      pauseMs = this.isFailing
        ? Math.min(2 * pauseMs, Math.max(intervalMs, SLOWEST_MS))
        : intervalMs;
      this.timer = setTimeout(() => void this.refresh().then(again), pauseMs);
      this.timer.unref();
    };
    again();
  }

  stop(): void {
    this.following = false;
    clearTimeout(this.timer);
  }

  private async refreshAlone(): Promise<void> {
    try {
      const next = await this.next();
      if (next !== null) this.served = next;
      if (this.problem !== null) this.options.log.info('a good snapshot is there');
      this.problem = null;
      this.isFailing = false;
    } catch (error) {
      this.options.source.forgetManifest();
      this.isFailing = !(error instanceof RefusedSnapshot && error.code === 'no_manifest');
      const problem = error instanceof Error ? error.message : String(error);
      // The same problem comes back with every poll; it is news only once.
      if (problem !== this.problem) {
        if (this.isFailing)
          this.options.log.error({ err: error }, 'the newest snapshot is not served');
        else this.options.log.info(problem);
      }
      this.problem = problem;
    }
    this.tellEnd();
  }

  /** The public is told with every verdict that it does not get; whoever runs this is told here. */
  private tellEnd(): void {
    const { clock, log } = this.options;
    const { served, isOver } = this;
    this.isOver = served !== null && clock.now() >= served.opened.validUntil;
    if (this.isOver === isOver) return;
    const valid_until = served?.opened.manifest.valid_until;
    if (this.isOver) log.error({ valid_until }, 'ALARM: the snapshot is over: nothing is asserted');
    else log.info({ valid_until }, 'verdicts are given again');
  }

  /** The snapshot to go over to, or null when the one that is served is the newest. */
  private async next(): Promise<Snapshot | null> {
    const { source, sha256, verify, trust } = this.options;
    const { served, inHand } = this;
    const bytes = await source.manifest();
    if (bytes === null) throw new RefusedSnapshot('no_manifest', 'no snapshot is published');
    if (served !== null && equalBytes(bytes, served.bytes)) return null;
    const opened = openManifest(verify, bytes, trust);
    if (served !== null) await this.requireSuccessor(served.opened, opened);
    this.keepParts(served === null ? [opened] : [served.opened, opened]);
    const next = await Snapshot.load(sha256, source, bytes, opened, served, inHand);
    this.keepParts([opened]);
    return next;
  }

  private keepParts(snapshots: readonly OpenedManifest[]): void {
    const kept = new Set(
      snapshots.flatMap(({ manifest }) => manifest.index_parts.map(({ sha256 }) => sha256)),
    );
    for (const name of this.inHand.keys()) if (!kept.has(name)) this.inHand.delete(name);
  }

  private async requireSuccessor(served: OpenedManifest, next: OpenedManifest): Promise<void> {
    const { generation } = next.manifest;
    if (generation < served.manifest.generation) {
      throw new RefusedSnapshot(
        'older_generation',
        `generation ${generation} is older than ${served.manifest.generation}, which was served already`,
      );
    }
    if (generation === served.manifest.generation) {
      throw new RefusedSnapshot(
        'same_generation',
        `there are two different snapshots of generation ${generation}`,
      );
    }
    const [from, to] = [served.checkpoint, next.checkpoint];
    if (to.size < from.size) {
      throw new RefusedSnapshot(
        'smaller_tree',
        `the log has ${to.size} leaves, and had ${from.size} before`,
      );
    }
    const { sha256, source } = this.options;
    const growth = { logFile: (file: string) => source.logFile(file, true) };
    const path = await consistencyFromTiles(
      sha256,
      from.size,
      to.size,
      async (level, index, width) => {
        const hashes = await readTile(growth, level, index, width);
        if (hashes?.length !== width * HASH_BYTES) {
          throw malformed(`tile ${level}/${index} of ${width} hashes cannot be read`);
        }
        return hashes;
      },
    );
    const consistent = verifyConsistency(sha256, {
      size1: from.size,
      root1: from.root,
      size2: to.size,
      root2: to.root,
      path,
    });
    if (!consistent) {
      throw new RefusedSnapshot(
        'forked_log',
        `the log of ${to.size} leaves does not extend the one of ${from.size} that was served`,
      );
    }
  }
}
