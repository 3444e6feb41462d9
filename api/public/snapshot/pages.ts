import { equalBytes } from '#protocol/bytes';
import { StoredPage, type PageLink } from '#protocol/map/page';
import { malformed, pagePath } from '#protocol/snapshot/location';
import { nativeSha256 } from '#runtime/crypto/node';
import { ByteCache, type Kept } from '#runtime/process/byte-cache';
import type { SnapshotSource } from './source.js';

/** Memory limits of cached pages, in bytes. */
export interface PageMemory {
  /** Pages of level 0, which hold the records. */
  leafBytes: number;
  /** Pages of level 1 and above, which refer to other pages: about 1.5 bytes for each record of the map. */
  upperBytes: number;
}

const PAGE_MEMORY: PageMemory = {
  leafBytes: 48 * 1024 * 1024,
  upperBytes: 160 * 1024 * 1024,
};
/** Memory limit for the names of verified pages: about 250,000 names. */
const VERIFIED_BYTES = 40 * 1024 * 1024;
const NAME_BYTES = 160;
/** Estimated memory of each page, leaf and link in addition to its content, in bytes. */
const PAGE_OVERHEAD = 512;
const LEAF_OVERHEAD = 69;
const LINK_OVERHEAD = 45;

/** Thrown by a search that needs a page which is being fetched. */
class PageMissing extends Error {
  constructor(readonly arrival: Promise<unknown>) {
    super('a page of the map is not in memory');
  }
}

/** Runs a search. If a page is not in memory, runs the search again when the page has arrived. */
export function whenFetched<T>(search: () => T): T | Promise<T> {
  try {
    return search();
  } catch (error) {
    if (error instanceof PageMissing) return error.arrival.then(() => whenFetched(search));
    throw error;
  }
}

class CachedPage extends StoredPage {
  /** Pages of the level below, by the item that refers to the page: a search needs no look-up by name. */
  readonly below: (Kept<CachedPage> | undefined)[] = [];
}

/**
 * Reads pages of maps, and verifies each page against the digest and the root that the page above,
 * or the snapshot entry, has for the page. Keeps only verified pages, so that the next lookup reads
 * a damaged page again.
 */
export class PageReader {
  private readonly leaves: ByteCache<CachedPage>;
  private readonly upper: ByteCache<CachedPage>;
  /** Names of pages with a verified root: when such a page is read again, only its digest is verified. */
  private readonly verified = new ByteCache<true>(VERIFIED_BYTES);

  constructor(
    private readonly source: Pick<SnapshotSource, 'page'>,
    { leafBytes, upperBytes }: PageMemory = PAGE_MEMORY,
  ) {
    this.leaves = new ByteCache(leafBytes);
    this.upper = new ByteCache(upperBytes);
  }

  /** The page to which an item of `page` refers. Throws as {@link load} does, or `PageMissing`. */
  below(page: StoredPage, at: number): StoredPage {
    const { below } = page as CachedPage;
    const kept = below[at];
    if (kept?.value !== undefined) {
      kept.isUsed = true;
      return kept.value;
    }
    const [start, end] = page.hashesAt(at);
    const name = latin1(page.bytes, start, end);
    const found = this.known(name, page.level - 1) ?? this.read(name, page.linkAt(at));
    if (found instanceof Promise) throw new PageMissing(found);
    below[at] = this.cacheOf(found.level).find(name);
    return found;
  }

  /** @throws ProtocolError for a damaged page, and what the source throws */
  load(link: PageLink): StoredPage | Promise<StoredPage> {
    const name = latin1(link.hash) + latin1(link.digest);
    return this.known(name, link.level) ?? this.read(name, link, true);
  }

  private known(name: string, level: number): CachedPage | undefined {
    const page = this.cacheOf(level).get(name);
    return page?.level === level ? page : undefined;
  }

  private cacheOf(level: number): ByteCache<CachedPage> {
    return level === 0 ? this.leaves : this.upper;
  }

  private read(name: string, link: PageLink, isUrgent = false): CachedPage | Promise<CachedPage> {
    const bytes = this.source.page(link, isUrgent);
    return bytes instanceof Promise
      ? bytes.then((read) => this.keep(name, link, read))
      : this.keep(name, link, bytes);
  }

  private keep(name: string, link: PageLink, bytes: Uint8Array): CachedPage {
    const { level, hash, digest } = link;
    if (!equalBytes(nativeSha256(bytes), digest))
      throw malformed(`${pagePath(link)} does not match its digest`);
    const page = new CachedPage(level, bytes);
    if (this.verified.get(name) === undefined) {
      if (!equalBytes(page.root(nativeSha256), hash))
        throw malformed(`${pagePath(link)} does not match its root`);
      this.verified.put(name, true, NAME_BYTES);
    }
    const itemOverhead = level === 0 ? LEAF_OVERHEAD : LINK_OVERHEAD;
    const memory = bytes.length + page.count * itemOverhead + PAGE_OVERHEAD;
    this.cacheOf(level).put(name, page, memory);
    return page;
  }
}

function latin1(bytes: Uint8Array, start = 0, end = bytes.length): string {
  const buffer = Buffer.isBuffer(bytes)
    ? bytes
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  return buffer.toString('latin1', start, end);
}
