import { toHex } from '../bytes.js';
import type { Sha256 } from '../hash.js';
import { divide, firstDifference, mapRoot } from './nodes.js';
import {
  byKey,
  encodeLeaves,
  encodeRefs,
  lastUpTo,
  leafOf,
  type Leaf,
  type MapValue,
  type PageId,
  type PageRef,
} from './page.js';

/** The new value of a key; null removes the key. */
export interface MapChange {
  key: Uint8Array;
  value: MapValue | null;
}

/** A page while an update changes it. */
interface Page extends Omit<PageRef, 'hash' | 'digest'> {
  /** As in `PageRef`; null in a new page until all its changes are made. */
  hashes: Pick<PageRef, 'hash' | 'digest'> | null;
  /** Leaves at level 0, else pages of the level below; null if they are not loaded. */
  items: readonly Item[] | null;
}
type Item = Leaf | Page;

interface Updated {
  /** The page that holds the whole map; null if it is empty. */
  head: PageRef | null;
  /** The pages to write; one that changes leave as it is may be among them. */
  pages: { page: PageId; bytes: Uint8Array; items: readonly (Leaf | PageRef)[] }[];
  /** The pages that the new map no longer has. */
  superseded: PageId[];
}

const nameOf = ({ level, digest }: PageId): string => `${level}/${toHex(digest)}`;

/** One update of a map in pages: it computes the new pages in memory. */
export class Update {
  /** The pages whose items this update read, by name. */
  private readonly loaded = new Map<string, PageId>();

  constructor(
    private readonly sha256: Sha256,
    private readonly capacity: number,
    private readonly load: (page: PageId) => Promise<readonly (Leaf | PageRef)[]>,
  ) {}

  /** Applies changes, each of another key. New pages come before those above them. */
  async run(old: PageId | null, changes: readonly MapChange[]): Promise<Updated> {
    let level = old?.level ?? 0;
    const items = old === null ? [] : await this.stored(old);
    let tops = this.split(level, await this.changed(level, items, [...changes].sort(byKey)));
    while (tops.length > 1) tops = this.split(++level, tops);
    let [top = null] = tops;
    while (top !== null && top.level > 0 && top.count === 1) {
      top = (await this.itemsOf(top))[0] as Page;
    }
    const pages: Updated['pages'] = [];
    const head = top === null ? null : this.finish(top, pages);
    const kept = new Set(pages.map(({ page }) => nameOf(page)));
    const superseded = [...this.loaded].flatMap(([name, page]) => (kept.has(name) ? [] : [page]));
    return { head, pages, superseded };
  }

  /** Hashes a page and the new pages below it, and adds them to `pages`. */
  private finish(page: Page, pages: Updated['pages']): PageRef {
    const { level, key, bit, count } = page;
    if (page.hashes === null) {
      const items =
        level === 0
          ? (page.items as readonly Leaf[])
          : (page.items as readonly Page[]).map((below) => this.finish(below, pages));
      const bytes =
        level === 0
          ? encodeLeaves(items as readonly Leaf[])
          : encodeRefs(level, items as readonly PageRef[]);
      page.hashes = { hash: mapRoot(this.sha256, items), digest: this.sha256(bytes) };
      pages.push({ page: { level, digest: page.hashes.digest }, bytes, items });
    }
    return { level, key, bit, count, ...page.hashes };
  }

  /** The items of a page of `level` after changes: leaves, or pages that merge where they can. */
  private async changed(
    level: number,
    items: readonly Item[],
    changes: readonly MapChange[],
  ): Promise<readonly Item[]> {
    if (level === 0) return this.changedLeaves(items as readonly Leaf[], changes);
    const pages = items as readonly Page[];
    const inside = new Map<Page, MapChange[]>();
    const added: Page[] = [];
    for (const change of changes) {
      const page = pageAround(pages, change.key);
      if (page === undefined) {
        if (change.value !== null) added.push(this.pageOfOne(level - 1, change.key, change.value));
        continue;
      }
      const own = inside.get(page);
      if (own === undefined) inside.set(page, [change]);
      else own.push(change);
    }
    const parts = await Promise.all(
      pages.map(async (page) => {
        const own = inside.get(page);
        if (own === undefined) return [page];
        const { level: below } = page;
        return this.split(below, await this.changed(below, await this.itemsOf(page), own));
      }),
    );
    return this.merged([...parts.flat(), ...added].sort(byKey));
  }

  private changedLeaves(leaves: readonly Leaf[], changes: readonly MapChange[]): Leaf[] {
    const changed = new Set(changes.map(({ key }) => toHex(key)));
    const kept = leaves.filter(({ key }) => !changed.has(toHex(key)));
    const put = changes.flatMap(({ key, value }) =>
      value === null ? [] : [leafOf(this.sha256, key, value)],
    );
    return [...kept, ...put].sort(byKey);
  }

  /** Pages of one level with the items: of the largest subtrees that fit into a page. */
  private split(level: number, items: readonly Item[], from = 0, to = items.length): Page[] {
    if (from === to) return [];
    if (to - from <= this.capacity) return [pageOf(level, items.slice(from, to))];
    const { at } = divide(items, from, to);
    return [...this.split(level, items, from, at), ...this.split(level, items, at, to)];
  }

  /**
   * Merges adjacent pages whose items fit into one page, if they form a subtree. Smaller subtrees come
   * first, because pages below that merge leave fewer items.
   */
  private async merged(pages: readonly Page[]): Promise<readonly Page[]> {
    if (pages.length <= 1) return pages;
    const { at } = divide(pages, 0, pages.length);
    const left = await this.merged(pages.slice(0, at));
    const both = [...left, ...(await this.merged(pages.slice(at)))];
    if (both.reduce((sum, { count }) => sum + count, 0) > this.capacity) return both;
    const { level } = pages[0]!;
    const items = (await Promise.all(both.map((page) => this.itemsOf(page)))).flat();
    return [pageOf(level, level === 0 ? items : await this.merged(items as Page[]))];
  }

  private pageOfOne(level: number, key: Uint8Array, value: MapValue): Page {
    if (level === 0) return pageOf(0, [leafOf(this.sha256, key, value)]);
    return pageOf(level, [this.pageOfOne(level - 1, key, value)]);
  }

  private async itemsOf(page: Page): Promise<readonly Item[]> {
    if (page.items !== null) return page.items;
    return this.stored({ level: page.level, digest: page.hashes!.digest });
  }

  private async stored(page: PageId): Promise<readonly Item[]> {
    this.loaded.set(nameOf(page), page);
    const items = await this.load(page);
    return items.map((item) => {
      if (!('level' in item)) return item;
      const { hash, digest, ...rest } = item;
      return { ...rest, hashes: { hash, digest }, items: null };
    });
  }
}

function pageOf(level: number, items: readonly Item[]): Page {
  const first = items[0]!;
  const isOne = items.length === 1 && 'bit' in first;
  const bit = isOne ? first.bit : firstDifference(first.key, items[items.length - 1]!.key);
  return { level, key: first.key, bit, count: items.length, hashes: null, items };
}

/** The page whose subtree a key belongs to; undefined if it differs from every page above its root. */
function pageAround(pages: readonly Page[], key: Uint8Array): Page | undefined {
  const at = lastUpTo(pages, key);
  return [pages[at], pages[at + 1]].find(
    (page) => page !== undefined && firstDifference(page.key, key) >= page.bit,
  );
}
