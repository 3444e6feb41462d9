import { equalBytes, fromBase64, toHex } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import { mapRoot } from '#protocol/map/nodes';
import { decodeLeaves, decodeRefs, type MapValue, type PageId } from '#protocol/map/page';
import { type MapHead, MapPages, type PageStore } from '#protocol/map/paged-map';
import type { MapChange } from '#protocol/map/update';
import { pageIdOf, pagePath, type SnapshotLocation } from '#protocol/snapshot/location';
import { nativeSha256 } from '#runtime/crypto/node';
import { LostPageError } from '../errors.js';
import type { SnapshotReader, SnapshotWriter, Janitor } from './published-files.js';

export const EMPTY_ROOT = mapRoot(nativeSha256, []);
export const rootOf = (head: MapHead): Uint8Array => head?.hash ?? EMPTY_ROOT;

/** New pages are written before the end of a cycle once they exceed this number of bytes. */
const MAX_PENDING_BYTES = 64 * 1024 * 1024;

/** A request to a bucket takes tens of milliseconds, and a large map has thousands of pages above level 0. */
const READS_AT_ONCE = 16;

/** A cache of few pages suffices: the ids of proofs begin with the time, so recent proofs share pages. */
const CACHED_PAGES = 512;

/** Maps whose pages are in the snapshot's store. New pages stay in memory until `flush`. */
export class StoredMaps {
  private readonly pages: MapPages;
  private readonly pending = new Map<string, { page: PageId; bytes: Uint8Array }>();
  private pendingBytes = 0;
  /** Names of written pages that updates superseded since the last `takeSuperseded`. */
  private superseded = new Set<string>();

  constructor(
    private readonly reader: SnapshotReader,
    private readonly writer: SnapshotWriter,
    private readonly janitor: Janitor,
  ) {
    const store: PageStore = {
      read: (page) => this.read(page),
      write: (page, bytes) => Promise.resolve(this.add(page, bytes)),
    };
    this.pages = new MapPages(nativeSha256, store, undefined, CACHED_PAGES, true);
  }

  /**
   * Opens the published map. Throws LostPageError if its top page does not have the root in the
   * location.
   */
  async open(location: SnapshotLocation, which: 'map' | 'shares'): Promise<MapHead> {
    const root = fromBase64(location.snapshot[`${which}_root`]);
    const page = pageIdOf(location[which]);
    const head = page === null ? null : { ...page, hash: await this.rootIn(page) };
    if (equalBytes(rootOf(head), root)) return head;
    throw new LostPageError(`the published ${which} page does not have the root in the snapshot`);
  }

  async rootIn(page: PageId): Promise<Uint8Array> {
    return lost(async () => {
      const bytes = await this.read(page);
      if (!equalBytes(nativeSha256(bytes), page.digest)) {
        throw new LostPageError(`the digest of ${pagePath(page)} differs from its name`);
      }
      const { level } = page;
      const items = level === 0 ? decodeLeaves(nativeSha256, bytes) : decodeRefs(level, bytes);
      return mapRoot(nativeSha256, items);
    });
  }

  find(head: MapHead, key: Uint8Array): Promise<MapValue | null> {
    return lost(() => this.pages.find(head, key));
  }

  findAll(head: MapHead, keys: readonly Uint8Array[]): Promise<(MapValue | null)[]> {
    return lost(() => this.pages.findAll(head, keys));
  }

  /** Applies changes, at most one for each key, and returns the new map. */
  async update(head: MapHead, changes: readonly MapChange[]): Promise<MapHead> {
    if (changes.length === 0) return head;
    const updated = await lost(() => this.pages.update(head, changes));
    for (const { digest } of updated.superseded) {
      const name = toHex(digest);
      const unwritten = this.pending.get(name);
      if (unwritten === undefined) this.superseded.add(name);
      else this.pendingBytes -= unwritten.bytes.length;
      this.pending.delete(name);
    }
    if (this.pendingBytes > MAX_PENDING_BYTES) await this.flush();
    return updated.head;
  }

  /** Writes the new pages, which are durable when this returns. */
  async flush(): Promise<void> {
    const pages = [...this.pending.values()];
    await this.writer.put(
      pages.map(({ page, bytes }) => ({ path: pagePath(page), bytes, replaces: true })),
    );
    this.pending.clear();
    this.pendingBytes = 0;
  }

  /** The names of the written pages that updates have superseded since the last call. */
  takeSuperseded(): ReadonlySet<string> {
    const { superseded } = this;
    this.superseded = new Set();
    return superseded;
  }

  /** The names of all pages of a map. Reads every page above level 0. */
  async *names(head: MapHead): AsyncGenerator<string> {
    let pages: PageId[] = head === null ? [] : [head];
    while (pages.length > 0) {
      const some = pages.splice(-READS_AT_ONCE);
      for (const { digest } of some) yield toHex(digest);
      const below = some.map(async (page) =>
        page.level === 0 ? [] : decodeRefs(page.level, await this.read(page)),
      );
      pages = [...pages, ...(await lost(() => Promise.all(below))).flat()];
    }
  }

  /** Discards the updates of a cycle that published nothing. */
  reset(): void {
    this.pending.clear();
    this.pendingBytes = 0;
    this.superseded = new Set();
  }

  private async read(page: PageId): Promise<Uint8Array> {
    const pending = this.pending.get(toHex(page.digest));
    const bytes = pending?.bytes ?? (await this.reader.read(pagePath(page)));
    if (bytes === null) throw new LostPageError(`${pagePath(page)} is missing`);
    return bytes;
  }

  private add(page: PageId, bytes: Uint8Array): void {
    const name = toHex(page.digest);
    this.superseded.delete(name);
    this.janitor.keep(name);
    if (this.pending.has(name)) return;
    this.pending.set(name, { page, bytes });
    this.pendingBytes += bytes.length;
  }
}

/** Reports a damaged page as lost. */
async function lost<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (!(cause instanceof ProtocolError) || cause.code !== 'malformed_map_page') throw cause;
    throw new LostPageError(cause.message, { cause });
  }
}
