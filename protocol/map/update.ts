import { toHex } from '../bytes.js';
import type { Sha256 } from '../hash.js';
import { divide, firstDifference, mapRoot } from './nodes.js';
import {
  type PageLink,
  byKey,
  encodeLeaves,
  encodeRefs,
  lastUpTo,
  leafOf,
  push,
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
  /** Root and digest as in `PageRef`; null in a new page until all its changes are made. */
  hashes: Pick<PageRef, 'hash' | 'digest'> | null;
  /** Leaves at level 0, else pages of the level below; null if they are not loaded. */
  items: readonly Item[] | null;
}
type Item = Leaf | Page;
type Neighbors = readonly [Page | undefined, Page | undefined];

interface Updated {
  /** The page that holds the whole map; null if it is empty. */
  head: PageRef | null;
  /** The pages to write, possibly some that did not change. */
  pages: { page: PageLink; bytes: Uint8Array; items: readonly (Leaf | PageRef)[] }[];
  /** The pages of the old map that the new map no longer has. */
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
    private readonly load: (page: PageLink | PageRef) => Promise<readonly (Leaf | PageRef)[]>,
    /** Whether a reference's keys, bits and count are unreliable until its page is loaded. */
    private readonly isUntrusted: boolean,
  ) {}

  /** Applies changes, at most one for each key. The result has each new page before the pages above it. */
  async run(old: PageLink | null, changes: readonly MapChange[]): Promise<Updated> {
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
      pages.push({ page: { level, ...page.hashes }, bytes, items });
    }
    return { level, key, bit, count, ...page.hashes };
  }

  /** The items of a page of `level` after changes in key order: leaves, or pages, merged where possible. */
  private async changed(
    level: number,
    items: readonly Item[],
    changes: readonly MapChange[],
  ): Promise<readonly Item[]> {
    if (level === 0) return this.changedLeaves(items as readonly Leaf[], changes);
    const pages = items as readonly Page[];
    if (this.isUntrusted) await this.confirm(pages, changes);
    const inside = new Map<Page, MapChange[]>();
    // New leaves outside of every page, by the number of pages before each leaf.
    const between = new Map<number, Leaf[]>();
    let before = 0;
    for (const change of changes) {
      while (before < pages.length && byKey(pages[before]!, change) <= 0) before++;
      const [left, right] = [pages[before - 1], pages[before]];
      const page = isWithin(left, change.key) ? left : right;
      if (isWithin(page, change.key)) push(inside, page, change);
      else if (change.value !== null) {
        push(between, before, leafOf(this.sha256, change.key, change.value));
      }
    }
    const parts = pages.map(async (page, before) => {
      const added = this.pagesBetween(
        level - 1,
        [pages[before - 1], page],
        between.get(before) ?? [],
      );
      const own = inside.get(page);
      if (own === undefined) return [...added, page];
      const items = await this.changed(level - 1, await this.itemsOf(page), own);
      return [...added, ...this.split(level - 1, items)];
    });
    const { length } = pages;
    const last = this.pagesBetween(
      level - 1,
      [pages[length - 1], undefined],
      between.get(length) ?? [],
    );
    return this.merged([...(await Promise.all(parts)).flat(), ...last]);
  }

  /** Loads the pages that may have the keys of changes, which checks the references to these pages. */
  private async confirm(pages: readonly Page[], changes: readonly MapChange[]): Promise<void> {
    const load = (near: Iterable<Page>) =>
      Promise.all(Array.from(near, (page) => this.load({ ...page, ...page.hashes! })));
    const [first, second] = [new Set<Page>(), new Set<Page>()];
    // Only the page before a key or the page after it can have the key.
    const before = changes.map(({ key }) => lastUpTo(pages, key));
    for (const at of before) first.add(pages[Math.max(at, 0)]!);
    await load(first);
    before.forEach((at, i) => {
      const next = pages[at + 1];
      if (next === undefined || first.has(next)) return;
      if (!isWithin(pages[at], changes[i]!.key)) second.add(next);
    });
    await load(second);
  }

  private changedLeaves(leaves: readonly Leaf[], changes: readonly MapChange[]): Leaf[] {
    const result: Leaf[] = [];
    let at = 0;
    for (const change of changes) {
      while (at < leaves.length && byKey(leaves[at]!, change) < 0) result.push(leaves[at++]!);
      if (at < leaves.length && byKey(leaves[at]!, change) === 0) at++;
      if (change.value !== null) result.push(leafOf(this.sha256, change.key, change.value));
    }
    return [...result, ...leaves.slice(at)];
  }

  /** Puts the items into pages of one level, each with the largest subtree that fits. */
  private split(level: number, items: readonly Item[], from = 0, to = items.length): Page[] {
    if (from === to) return [];
    if (to - from <= this.capacity) return [pageOf(level, items.slice(from, to))];
    const { at } = divide(items, from, to);
    return [...this.split(level, items, from, at), ...this.split(level, items, at, to)];
  }

  /**
   * Merges adjacent pages that form a subtree and whose items fit into one page. Merges smaller subtrees
   * first, because each merge leaves fewer items for the subtree above.
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

  /** New pages of a level, for leaves between two pages: subtrees that include neither of these pages. */
  private pagesBetween(level: number, [left, right]: Neighbors, leaves: readonly Leaf[]): Page[] {
    if (leaves.length === 0) return [];
    const [first, last] = [leaves[0]!.key, leaves[leaves.length - 1]!.key];
    const bit = firstDifference(first, last);
    const isBetween =
      (left === undefined || firstDifference(left.key, first) < bit) &&
      (right === undefined || firstDifference(last, right.key) < bit);
    if (!isBetween) {
      const { at } = divide(leaves, 0, leaves.length);
      return [leaves.slice(0, at), leaves.slice(at)].flatMap((side) =>
        this.pagesBetween(level, [left, right], side),
      );
    }
    let pages = this.split(0, leaves);
    for (let above = 1; above <= level; above++) pages = this.split(above, pages);
    return pages;
  }

  private async itemsOf(page: Page): Promise<readonly Item[]> {
    if (page.items !== null) return page.items;
    return this.stored({ ...page, ...page.hashes! });
  }

  private async stored(page: PageLink | PageRef): Promise<readonly Item[]> {
    const { level, digest } = page;
    this.loaded.set(nameOf(page), { level, digest });
    const items = await this.load(page);
    return items.map((item) => {
      if (!('level' in item)) return item;
      const { hash, digest, ...rest } = item;
      return { ...rest, hashes: { hash, digest }, items: null };
    });
  }
}

function pageOf(level: number, items: readonly Item[]): Page {
  return { level, ...extentOf(items), hashes: null, items };
}

/** The members of a reference to a page with these items. */
export function extentOf(
  items: readonly (Leaf | Pick<PageRef, 'key' | 'bit'>)[],
): Pick<PageRef, 'key' | 'bit' | 'count'> {
  const first = items[0]!;
  const isOne = items.length === 1 && 'bit' in first;
  const bit = isOne ? first.bit : firstDifference(first.key, items[items.length - 1]!.key);
  return { key: first.key, bit, count: items.length };
}

/** Whether a key belongs to the subtree of a page: it has the bits that all keys of the page share. */
const isWithin = (page: Page | undefined, key: Uint8Array): page is Page =>
  page !== undefined && firstDifference(page.key, key) >= page.bit;
