import { equalBytes, toHex } from '../bytes.js';
import type { Sha256 } from '../hash.js';
import { bitOf, divide, mapRoot } from './nodes.js';
import {
  decodeLeaves,
  decodeRefs,
  type PageLink,
  malformed,
  push,
  type Leaf,
  type MapValue,
  type PageId,
  type PageRef,
} from './page.js';
import { extentOf, Update, type MapChange } from './update.js';

/** Stores pages by level and digest. A page never changes. */
export interface PageStore {
  /** @throws when no such page is stored */
  read(page: PageId): Promise<Uint8Array>;
  write(page: PageId, bytes: Uint8Array): Promise<void>;
}

/** The page that holds a whole map, with the root of the map; null for the empty map. */
export type MapHead = Pick<PageRef, 'level' | 'hash' | 'digest'> | null;

type Items = readonly (Leaf | PageRef)[];

/** Maximum number of leaves or pages in a page. */
const CAPACITY = 128;

/**
 * Maps in pages. The keys and values alone determine the pages: pages of level 0 hold the largest subtrees of at most
 * 128 leaves, pages of level n the largest subtrees of at most 128 pages of level n − 1. An update writes new versions
 * of the changed pages and of the pages above them, and overwrites no page.
 *
 * Every page that is read must have the digest stated in the page above it; otherwise methods throw
 * `malformed_map_page`. The caller must trust the root of the head, and with a trusted store also
 * the digest of the head.
 */
export class MapPages {
  /** The items of the pages read or written last, by root and digest. */
  private readonly cached = new Map<string, Promise<Items>>();

  constructor(
    private readonly sha256: Sha256,
    private readonly store: PageStore,
    private readonly capacity = CAPACITY,
    /** Number of pages whose items are kept, up to about 40 kB each. */
    private readonly cacheSize = 0,
    /** Whether other processes may have written the store. If so, the root of each page is checked, too. */
    private readonly isUntrusted = false,
  ) {}

  /** The value of a key; null if the map does not have the key. */
  async find(head: MapHead, key: Uint8Array): Promise<MapValue | null> {
    return (await this.findAll(head, [key]))[0]!;
  }

  /** The values of keys, in the order of `keys`. Reads each page once, even if it has several of the keys. */
  async findAll(head: MapHead, keys: readonly Uint8Array[]): Promise<(MapValue | null)[]> {
    const values = new Array<MapValue | null>(keys.length).fill(null);
    if (head !== null && keys.length > 0) await this.findIn(head, keys, [...keys.keys()], values);
    return values;
  }

  private async findIn(
    page: PageLink | PageRef,
    keys: readonly Uint8Array[],
    sought: readonly number[],
    values: (MapValue | null)[],
  ): Promise<void> {
    const items = await this.load(page);
    const below = new Map<PageRef, number[]>();
    for (const at of sought) {
      const found = endOf(items, keys[at]!);
      if ('level' in found) push(below, found, at);
      else if (equalBytes(found.key, keys[at]!)) values[at] = found;
    }
    await Promise.all([...below].map(([page, sought]) => this.findIn(page, keys, sought, values)));
  }

  /**
   * Applies changes, at most one for each key, and writes the new pages, lowest level first.
   *
   * @returns the new map, and the pages of the old map that it no longer has
   */
  async update(head: MapHead, changes: readonly MapChange[]) {
    const load = (page: PageLink) => this.load(page);
    const update = new Update(this.sha256, this.capacity, load, this.isUntrusted);
    const { pages, ...updated } = await update.run(head, changes);
    for (const { page, bytes, items } of pages) {
      await this.store.write(page, bytes);
      void this.keep(nameOf(page), Promise.resolve(items));
    }
    return updated;
  }

  private async load(page: PageLink | PageRef): Promise<Items> {
    const name = nameOf(page);
    const items = await (this.cached.get(name) ?? this.keep(name, this.read(page)));
    // The root of a map does not cover the keys, bits and counts of references, so these are compared.
    if ('key' in page) {
      const { bit, count, key } = extentOf(items);
      if (page.bit !== bit || page.count !== count || !equalBytes(page.key, key))
        throw malformed('has other keys than the page above states');
    }
    return items;
  }

  private keep(name: string, items: Promise<Items>): Promise<Items> {
    if (this.cacheSize === 0) return items;
    this.cached.set(name, items);
    items.catch(() => this.cached.delete(name));
    if (this.cached.size > this.cacheSize) this.cached.delete(this.cached.keys().next().value!);
    return items;
  }

  private async read(page: PageLink): Promise<Items> {
    const { level, digest, hash } = page;
    const bytes = await this.store.read(page);
    if (!equalBytes(this.sha256(bytes), digest)) throw malformed('has another digest');
    const items = level === 0 ? decodeLeaves(this.sha256, bytes) : decodeRefs(level, bytes);
    if (this.isUntrusted && !equalBytes(mapRoot(this.sha256, items), hash))
      throw malformed('has another root');
    return items;
  }
}

const nameOf = ({ hash, digest }: PageLink): string => toHex(hash) + toHex(digest);

/** The item where the search for a key ends. Compares only bits that the root covers. */
function endOf(items: Items, key: Uint8Array): Leaf | PageRef {
  let [from, to] = [0, items.length];
  while (to - from > 1) {
    const { bit, at } = divide(items, from, to);
    if (bitOf(key, bit) === 1) from = at;
    else to = at;
  }
  return items[from]!;
}
