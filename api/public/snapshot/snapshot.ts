import { fromBase64, toBase64, equalBytes } from '#protocol/bytes';
import type { MapQuery } from '#protocol/evidence/lookups';
import {
  findValue,
  searchMap,
  type MapSearch,
  type PageLink,
  type ReadBelow,
  StoredPage,
  type Leaf,
  type MapValue,
} from '#protocol/map/page';
import { mapRoot } from '#protocol/map/nodes';
import { MAX_SNAPSHOT_MS, type SnapshotEntry } from '#protocol/schemas/log-entry';
import {
  malformed,
  pageIdOf,
  pagePath,
  type OpenedLocation,
  type SnapshotLocation,
} from '#protocol/snapshot/location';
import type { LogView } from '#protocol/state/answers';
import { aepKeyMapKey, decodeAepKey, type AepKeyLife } from '#protocol/state/record';
import { parseTime } from '#protocol/time';
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

const EMPTY_ROOT = toBase64(mapRoot(nativeSha256, []));

/** Tolerated difference between the clocks of the database and of this server, as in the alert SvcClockSkew. */
const MIN_SKEW_MS = 2_000;

type Heads = Record<MapQuery['map'], StoredPage | null>;

/** One verified snapshot of the registry; immutable. */
export class Snapshot {
  /** Index of the snapshot entry. */
  readonly generation: number;
  readonly entry: SnapshotEntry;
  /** The part of the entry about this service's log. */
  readonly log: SnapshotEntry['logs'][number];
  /** Milliseconds since 1970. */
  readonly issuedAt: number;
  /**
   * Verdicts must not be asserted after this time: an expiry after `expired_through` may be
   * missing.
   */
  readonly validUntil: number;

  private readonly below: ReadBelow;

  /** The covered logs, by shard. */
  private readonly logs: ReadonlyMap<number, LogView>;

  /** Key records that lookups have read; kept without a limit, because a log has few keys. */
  private readonly aepKeys = new Map<string, AepKeyLife>();

  private constructor(
    readonly bytes: Uint8Array,
    readonly opened: OpenedLocation,
    pages: PageReader,
    private readonly heads: Heads,
  ) {
    this.below = (page, at) => pages.below(page, at);
    this.generation = opened.index;
    // Copies the entry through JSON. The location file contains a dash outside Latin-1, so V8 stores each string that
    // was parsed from it, and each answer with such a string, with two bytes per character.
    this.entry = JSON.parse(JSON.stringify(opened.snapshot)) as SnapshotEntry;
    this.log = this.entry.logs[0]!;
    this.logs = new Map(
      this.entry.logs.map(({ shard, origin, size, expired_through }) => [
        shard,
        { origin, size, expiredThrough: parseTime(expired_through) },
      ]),
    );
    this.issuedAt = parseTime(this.entry.time);
    const { expiredThrough } = this.logOf(this.log.shard);
    this.validUntil = Math.min(opened.validUntil, expiredThrough + MAX_SNAPSHOT_MS);
  }

  /**
   * Why verdicts must not be asserted at `now`; null if they may be. `ahead`: the snapshot's time is ahead of
   * `now` by at least its period of validity, so a clock is wrong, and `validUntil` bounds nothing.
   */
  unusableAt(now: number): 'expired' | 'ahead' | null {
    if (now >= this.validUntil) return 'expired';
    const isAhead = this.issuedAt - now >= Math.max(this.validUntil - this.issuedAt, MIN_SKEW_MS);
    return isAhead ? 'ahead' : null;
  }

  /** @throws ProtocolError `malformed_snapshot` for a log that the snapshot does not cover */
  logOf(shard: number): LogView {
    const log = this.logs.get(shard);
    if (log === undefined) throw malformed(`the snapshot does not cover the log of shard ${shard}`);
    return log;
  }

  /** Loads the head pages of the maps, and checks their roots against the snapshot entry. */
  static async load(
    pages: PageReader,
    bytes: Uint8Array,
    opened: OpenedLocation,
  ): Promise<Snapshot> {
    const { location, snapshot } = opened;
    const headOf = async (page: SnapshotLocation['map'], root: string) => {
      const link = linkTo(page, root);
      return link === null ? null : pages.load(link);
    };
    return new Snapshot(bytes, opened, pages, {
      map_root: await headOf(location.map, snapshot.map_root),
      shares_root: await headOf(location.shares, snapshot.shares_root),
    });
  }

  get checkpointNote(): string {
    const { tlog_proof: proof } = this.opened.location;
    return proof.slice(proof.indexOf('\n\n') + 2);
  }

  /** The value of a key; null if the map lacks the key. Every search must run in `whenFetched`. */
  find({ map, key }: MapQuery): MapValue | null {
    return findValue(this.heads[map], key, this.below);
  }

  /** The leaf where the search for a key ends, with the path to it. */
  search({ map, key }: MapQuery): MapSearch {
    return searchMap(nativeSha256, this.heads[map], key, this.below);
  }

  /** The record of the AEP key that the log of a shard activates at an index. */
  aepKey(shard: number, index: number): AepKeyLife {
    // A string, because one number for shard and index could exceed 2^53 and be ambiguous.
    const name = `${shard} ${index}`;
    const known = this.aepKeys.get(name);
    if (known !== undefined) return known;
    const value = this.find({ map: 'map_root', key: aepKeyMapKey(shard, index) });
    // Without this record the answer could hide a compromise of the key.
    if (value === null) throw malformed('the map lacks the record of a signing key');
    const life = decodeAepKey(value.record);
    this.aepKeys.set(name, life);
    return life;
  }

  /** All leaves of the map of public records whose key begins with this byte, ascending. */
  leavesOf(first: number): Leaf[] {
    const leavesIn = (page: StoredPage): Leaf[] => {
      const [from, to] = page.itemsOf(first);
      const items = Array.from({ length: to - from }, (_, n) => from + n);
      if (page.level > 0) return items.flatMap((at) => leavesIn(this.below(page, at)));
      return items.flatMap((at) =>
        page.keyAt(at)[0] === first ? [page.leafAt(nativeSha256, at)] : [],
      );
    };
    const head = this.heads.map_root;
    return head === null ? [] : leavesIn(head);
  }
}

function linkTo(page: SnapshotLocation['map'], root: string): PageLink | null {
  const hash = fromBase64(root);
  const id = pageIdOf(page);
  if (id !== null) return { ...id, hash };
  if (root === EMPTY_ROOT) return null;
  throw malformed('the location lacks the head page of a map that is not empty');
}
