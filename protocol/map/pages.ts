import { equalBytes, toHex } from '../bytes.js';
import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import {
  decodeLeaves,
  decodeRefs,
  lastUpTo,
  type Leaf,
  type MapValue,
  type PageId,
  type PageRef,
} from './page.js';
import { Update, type MapChange } from './update.js';

/** Stores pages by level and digest. A page never changes. */
export interface PageStore {
  /** @throws when no such page is stored */
  read(page: PageId): Promise<Uint8Array>;
  write(page: PageId, bytes: Uint8Array): Promise<void>;
}

/** The page that holds a whole map, with the root of the map; null for the empty map. */
export type MapHead = Pick<PageRef, 'level' | 'hash' | 'digest'> | null;

/** Most leaves or pages in a page. */
const CAPACITY = 128;

/**
 * Maps in pages. The keys and values alone determine the pages: those of level 0 hold the largest
 * subtrees of at most 128 leaves, those of level n the largest subtrees of at most 128 pages of level
 * n − 1. An update writes new pages in place of the changed ones and those above them.
 *
 * Every page that is read must have the digest stated in the page above it; otherwise methods throw
 * `malformed_map_page`. The caller must trust the head.
 */
export class MapPages {
  /** The items of the pages read or written last, by digest. */
  private readonly cached = new Map<string, Promise<readonly (Leaf | PageRef)[]>>();

  constructor(
    private readonly sha256: Sha256,
    private readonly store: PageStore,
    private readonly capacity = CAPACITY,
    /** Number of pages whose items are kept, up to about 40 kB each. */
    private readonly cacheSize = 0,
  ) {}

  /** The value of a key; null if the map has none. */
  async find(head: MapHead, key: Uint8Array): Promise<MapValue | null> {
    let page: PageId | null = head;
    while (page !== null) {
      const items = await this.load(page);
      const found = items[lastUpTo(items, key)];
      if (found === undefined) return null;
      if ('record' in found) return equalBytes(found.key, key) ? found : null;
      page = found;
    }
    return null;
  }

  /**
   * Applies changes, at most one for each key, and writes the new pages, lowest level first.
   *
   * @returns the new map, and the pages that it no longer has
   */
  async update(
    head: MapHead,
    changes: readonly MapChange[],
  ): Promise<{ head: MapHead; superseded: PageId[] }> {
    const update = new Update(this.sha256, this.capacity, (page) => this.load(page));
    const { pages, ...updated } = await update.run(head, changes);
    for (const { page, bytes, items } of pages) {
      await this.store.write(page, bytes);
      void this.keep(toHex(page.digest), Promise.resolve(items));
    }
    return updated;
  }

  private load(page: PageId): Promise<readonly (Leaf | PageRef)[]> {
    const name = toHex(page.digest);
    return this.cached.get(name) ?? this.keep(name, this.read(page));
  }

  private keep(
    name: string,
    items: Promise<readonly (Leaf | PageRef)[]>,
  ): Promise<readonly (Leaf | PageRef)[]> {
    if (this.cacheSize === 0) return items;
    this.cached.set(name, items);
    items.catch(() => this.cached.delete(name));
    if (this.cached.size > this.cacheSize) this.cached.delete(this.cached.keys().next().value!);
    return items;
  }

  private async read(page: PageId): Promise<readonly (Leaf | PageRef)[]> {
    const bytes = await this.store.read(page);
    if (!equalBytes(this.sha256(bytes), page.digest)) {
      throw new ProtocolError('malformed_map_page', 'a page of the map has another digest');
    }
    return page.level === 0 ? decodeLeaves(this.sha256, bytes) : decodeRefs(page.level, bytes);
  }
}
