import { fromHex } from '#protocol/bytes';
import { push } from '#protocol/map/page';
import { pagePath } from '#protocol/snapshot/location';
import { TILE_WIDTH } from '#protocol/tiles';
import type { SnapshotStore } from '#runtime/store/store';
import { LostPageError } from '../errors.js';

/** Replaced files stay at least this long, because readers may have an older snapshot. */
const KEEP_MS = 60 * 60 * 1000;
const SWEEP_EVERY_MS = 5 * 60 * 1000;
/** Nothing is published during a sweep, and a removal from a bucket takes tens of milliseconds: further files wait. */
const MOST_REMOVALS = 200;

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
    if (!this.hasScanned) await this.scan(live(), now);
    for (const [tile, paths] of this.partial) {
      if (!(sizeOfFull(tile) <= signedSize)) continue;
      for (const path of paths) this.unreferenced(path, now);
      this.partial.delete(tile);
    }
    const over = [...this.unreferencedSince].filter(([, since]) => now - since >= KEEP_MS);
    const removed = over.slice(0, MOST_REMOVALS).map(([path]) => path);
    if (removed.length < over.length) this.sweptAt = -Infinity;
    if (removed.length > 0) await requireCurrent();
    await this.store.remove(removed);
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
