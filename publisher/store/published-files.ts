import { equalBytes, fromUtf8, fromHex } from '#protocol/bytes';
import { type Checkpoint, openCheckpointNote } from '#protocol/checkpoint';
import { attempt } from '#protocol/errors';
import {
  CHECKPOINT_PATH,
  LOCATION_PATH,
  noteIn,
  openLocation,
  type OpenedLocation,
  pagePath,
} from '#protocol/snapshot/location';
import type { Vkey } from '#protocol/note';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import { TILE_WIDTH } from '#protocol/tiles';
import type { SnapshotStore } from '#runtime/store/store';
import { nativeCrypto, nativeVerify } from '#runtime/crypto/node';
import { FatalPublishError, unknownSigner, LeaseLostError, LostPageError } from '../errors.js';
import { push } from '#protocol/map/page';

/** The published snapshot, verified with the pinned keys. */
export interface Published extends OpenedLocation {
  bytes: Uint8Array;
}

export interface PublishedCheckpoint {
  note: string;
  checkpoint: Checkpoint;
  key: Vkey;
}

/**
 * Reads the published snapshot, and accepts only data that verifies. The last data that verified is
 * kept, because cycles read the same files repeatedly.
 */
export class SnapshotReader {
  private lastOpened: Published | null = null;
  private lastNote: PublishedCheckpoint | null = null;

  constructor(
    private readonly store: SnapshotStore,
    private readonly log: PinnedKeys,
  ) {}

  async snapshot(): Promise<Published | null> {
    const bytes = await this.read(LOCATION_PATH);
    if (bytes === null) return null;
    try {
      return this.open(bytes);
    } catch (cause) {
      const note = attempt(() => noteIn(bytes));
      throw this.unverifiable(LOCATION_PATH, note, cause);
    }
  }

  /**
   * The published checkpoint. The checkpoint is written before the location of its snapshot, so
   * after a crash it may be newer than the published snapshot, and readers may have seen it.
   */
  async checkpoint(path = CHECKPOINT_PATH): Promise<PublishedCheckpoint | null> {
    const bytes = await this.read(path);
    if (bytes === null) return null;
    const note = attempt(() => fromUtf8(bytes));
    try {
      if (note === undefined) throw new Error('not UTF-8');
      return this.openNote(note);
    } catch (cause) {
      throw this.unverifiable(path, note, cause);
    }
  }

  /** Opens a location under the keys of the log. Throws the errors of `openLocation`. */
  open(bytes: Uint8Array): Published {
    const last = this.lastOpened;
    if (last !== null && equalBytes(bytes, last.bytes)) return last;
    return (this.lastOpened = { bytes, ...openLocation(nativeCrypto, bytes, this.log) });
  }

  /** Opens a checkpoint under the keys of the log. Throws the errors of `openCheckpointNote`. */
  openNote(note: string): PublishedCheckpoint {
    if (this.lastNote?.note === note) return this.lastNote;
    const opened = openCheckpointNote(note, this.log, this.log[0].name, nativeVerify);
    return (this.lastNote = { note, ...opened });
  }

  read(path: string): Promise<Uint8Array | null> {
    return this.store.read(path);
  }

  private unverifiable(path: string, note: string | undefined, cause: unknown): Error {
    const where = `${path} in ${this.store.where}`;
    return (
      unknownSigner(note, this.log, where, cause) ??
      new FatalPublishError(
        'snapshot_unverifiable',
        `${where} is not signed by this publisher's log key. ` +
          'If the log key was changed on purpose, activate the earlier key with "admin log-key activate" and restart the publisher; ' +
          'if the files belong to another log, give this publisher an empty SNAPSHOT_DIR or SNAPSHOT_STORE; ' +
          'otherwise another process wrote the files: find that process before you start the publisher again.',
        { cause },
      )
    );
  }
}

/**
 * The head of `TRUSTED_CHECKPOINT`. Only this head shows lost leaves when database and snapshot
 * directory were rolled back together.
 */
export function trustedHead(
  note: string | undefined,
  log: PinnedKeys,
): Pick<Checkpoint, 'size' | 'root'> | null {
  if (note === undefined) return null;
  try {
    const { size, root } = openCheckpointNote(note, log, log[0].name, nativeVerify).checkpoint;
    return { size, root };
  } catch (cause) {
    throw new FatalPublishError(
      'checkpoint_unverifiable',
      `TRUSTED_CHECKPOINT is not a checkpoint of ${log[0].name} signed by this publisher's log key. ` +
        'Name a checkpoint of this log; if the log key was changed since, activate the earlier key with "admin log-key activate".',
      { cause },
    );
  }
}

/** A file of the snapshot whose name determines its content. */
export interface PublishedFile {
  path: string;
  bytes: Uint8Array;
  /**
   * Whether to replace different content under this path. Such content of a map page is damaged, because the path has
   * the hash of the page. Such content of a file of the log was never covered by a checkpoint.
   */
  replaces: boolean;
}

const AT_ONCE = 16;

export class SnapshotWriter {
  bytesWritten = 0;
  filesWritten = 0;

  /** @param requireLease throws LeaseLostError if another publisher holds the lease */
  constructor(
    private readonly store: SnapshotStore,
    private readonly requireLease: () => Promise<void>,
  ) {}

  /** Prepares the store for writes. Only the holder of the lease may call this. */
  prepare(): Promise<void> {
    return this.store.prepare();
  }

  /** Writes each file atomically, in any order. All files are durable when this returns. */
  async put(files: readonly PublishedFile[]): Promise<void> {
    const waiting = [...files];
    const results = await Promise.allSettled(
      Array.from({ length: Math.min(AT_ONCE, files.length) }, async () => {
        for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
          await this.putOne(file);
        }
      }),
    );
    // Reports a failure only after every write has ended.
    for (const result of results) if (result.status === 'rejected') throw result.reason;
    await this.store.sync(files.map(({ path }) => path));
  }

  /**
   * Replaces a file that readers fetch by a fixed name. The new file is durable when this returns.
   *
   * @param present the content that the file must still have; null: the file must not exist
   * @throws LeaseLostError when the file has different content
   */
  async replace(path: string, bytes: Uint8Array, present: Uint8Array | null): Promise<void> {
    if (!(await this.store.replace(path, bytes, present))) {
      throw new LeaseLostError(`another publisher replaced ${path} first`);
    }
    this.count(bytes);
    await this.store.sync([path]);
  }

  private async putOne({ path, bytes, replaces }: PublishedFile): Promise<void> {
    const present = await this.store.create(path, bytes);
    if (present === null) return this.count(bytes);
    if (equalBytes(present, bytes)) return;
    if (replaces) {
      // A publisher that resumes after a suspension must not replace a file that its successor has published.
      await this.requireLease();
      return this.replace(path, bytes, present);
    }
    throw new FatalPublishError(
      'published_file_differs',
      `${path} in ${this.store.where} is published with different content than the registry yields now, and a published file must never change. ` +
        'Compare the file with the registry: if the file was damaged, delete it and start the publisher again, which rewrites it; ' +
        'otherwise published rows of the registry were changed, and this log must not be continued.',
    );
  }

  private count(bytes: Uint8Array): void {
    this.bytesWritten += bytes.length;
    this.filesWritten += 1;
  }
}

/** Replaced files stay at least this long, because readers may have an older snapshot. */
const KEEP_MS = 60 * 60 * 1000;
const SWEEP_EVERY_MS = 5 * 60 * 1000;
/**
 * Removals in one sweep; one in a hundred of the due files if that is more, so that a lasting load does not leave ever
 * more files. Nothing is published during a sweep, and a removal from a bucket takes tens of milliseconds.
 */
const REMOVALS = 200;
/** Bounds the time without publishing when many files are due at once, as an hour after a restart. */
const MOST_REMOVALS = 2_000;

/** The first 52 bits of a name identify a page: a collision only keeps an unreferenced page. */
const keyOf = (name: string): number => Number.parseInt(name.slice(0, 13), 16);
const pathOf = (name: string): string => pagePath({ digest: fromHex(name) });

/** The least number of leaves of a tree in which a tile or entry bundle is full; NaN for the name of another file. */
function sizeOfFull(tile: string): number {
  const [, level = '', ...groups] = tile.split('/');
  const index = Number(groups.join('').replaceAll('x', ''));
  return (index + 1) * TILE_WIDTH ** (level === 'entries' ? 1 : Number(level) + 1);
}

/**
 * Removes superseded pages, pages that a publisher wrote before a crash, and partial tiles whose full
 * tile a checkpoint covers (until then, C2SP tlog-tiles requires the partial tiles).
 *
 * Replacement times are not stored. A file is removed after this process has seen it unreferenced for
 * the whole retention time, so a restart only delays removal.
 */
export class Janitor {
  private readonly unreferencedSince = new Map<string, number>();
  /** The partial tiles of each tile that no checkpoint is known to cover when full. */
  private readonly partial = new Map<string, string[]>();
  private hasScanned = false;
  private scannedAt = -Infinity;
  private sweptAt = -Infinity;

  /** @param progress called for each listed file, because a scan of a large log takes minutes in a bucket */
  constructor(
    private readonly store: SnapshotStore,
    private readonly progress: () => void = () => undefined,
  ) {}

  /** Records that the published maps no longer have pages with these names. */
  supersede(names: Iterable<string>, now: number): void {
    for (const name of names) this.unreferencedSince.set(pathOf(name), now);
  }

  /** Records that these tiles are stored. */
  wrote(tiles: Iterable<{ path: string }>): void {
    for (const { path } of tiles) {
      const [tile = '', width] = path.split('.p/');
      if (width !== undefined) push(this.partial, tile, path);
    }
  }

  /** Records that a map will have a page with this name again. */
  keep(name: string): void {
    this.unreferencedSince.delete(pathOf(name));
  }

  /** Lets the next sweep look for files that no cycle recorded, such as the pages of a failed cycle. */
  scanAgain(): void {
    this.hasScanned = false;
  }

  /**
   * Removes files if the interval has passed; only for the lease holder.
   *
   * @param live the names of the pages of the published maps
   * @param signedSize the size of the published checkpoint. A failed cycle may have left full tiles beyond it whose
   *   leaves a failover replaced.
   * @param requireCurrent called before files are removed; throws if the published maps may have changed
   * @throws LostPageError when one of these pages is missing
   */
  async sweep(
    live: () => AsyncIterable<string>,
    signedSize: number,
    now: number,
    requireCurrent: () => Promise<void>,
  ): Promise<string[]> {
    if (now - this.sweptAt < SWEEP_EVERY_MS) return [];
    this.sweptAt = now;
    if (!this.hasScanned) {
      // A scan lists all files, and nothing is published meanwhile.
      if (now - this.scannedAt < SWEEP_EVERY_MS) return [];
      this.scannedAt = now;
      await this.scan(live(), now);
    }
    for (const [tile, paths] of this.partial) {
      if (!(sizeOfFull(tile) <= signedSize)) continue;
      for (const path of paths) this.unreferenced(path, now);
      this.partial.delete(tile);
    }
    const due: string[] = [];
    for (const [path, since] of this.unreferencedSince) if (now - since >= KEEP_MS) due.push(path);
    const removed = due.slice(
      0,
      Math.min(MOST_REMOVALS, Math.max(REMOVALS, Math.ceil(due.length / 100))),
    );
    if (removed.length === 0) return [];
    await requireCurrent();
    try {
      await this.store.remove(removed);
    } catch (error) {
      // Each of these files waits another hour, so that one that cannot be deleted does not keep the others.
      for (const path of removed) {
        this.unreferencedSince.delete(path);
        this.unreferencedSince.set(path, now);
      }
      throw error;
    }
    // After a failure the next sweep waits for the interval.
    if (removed.length < due.length) this.sweptAt = -Infinity;
    for (const path of removed) this.unreferencedSince.delete(path);
    return removed;
  }

  private async scan(live: AsyncIterable<string>, now: number): Promise<void> {
    const isLive = new Set<number>();
    for await (const name of live) {
      isLive.add(keyOf(name));
      this.progress();
    }
    const found = new Set<number>();
    for await (const path of this.list('map')) {
      const key = keyOf(path.slice(path.lastIndexOf('/') + 1));
      if (isLive.has(key)) {
        found.add(key);
        this.unreferencedSince.delete(path);
      } else this.unreferenced(path, now);
    }
    if (found.size < isLive.size) {
      throw new LostPageError(
        `${isLive.size - found.size} pages of the published maps are missing`,
      );
    }
    this.partial.clear();
    for await (const path of this.list('tile')) this.wrote([{ path }]);
    this.hasScanned = true;
  }

  private unreferenced(path: string, now: number): void {
    if (!this.unreferencedSince.has(path)) this.unreferencedSince.set(path, now);
  }

  private async *list(folder: string): AsyncGenerator<string> {
    for await (const path of this.store.list(folder)) {
      this.progress();
      yield path;
    }
  }
}
