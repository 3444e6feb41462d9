import { fromBase64, toBase64 } from '#protocol/bytes';
import type { MapQuery } from '#protocol/evidence/lookups';
import {
  findValue,
  searchMap,
  type MapSearch,
  type PageLink,
  type ReadBelow,
  type StoredPage,
  type Leaf,
  type MapValue,
} from '#protocol/map/page';
import { mapRoot } from '#protocol/map/nodes';
import { MAX_SNAPSHOT_MS, type SnapshotEntry } from '#protocol/schemas/log-entry';
import {
  malformed,
  pageIdOf,
  type OpenedLocation,
  type SnapshotLocation,
} from '#protocol/snapshot/location';
import type { LogView } from '#protocol/state/answers';
import { aepKeyMapKey, decodeAepKey, type AepKeyLife } from '#protocol/state/record';
import { parseTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import type { PageReader } from './pages.js';

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
