import { toBase64 } from '../bytes.js';
import { readEntry } from '../entries.js';
import { MAX_AHEAD_MS } from '../evidence/verify.js';
import { mapRoot } from '../map/nodes.js';
import type { MapValue } from '../map/page.js';
import { MapPages, type MapHead } from '../map/paged-map.js';
import {
  MAX_SNAPSHOT_MS,
  type KeyEntry,
  type LogEntry,
  type SnapshotEntry,
} from '../schemas/log-entry.js';
import type { LogContext } from '../state/log-keys.js';
import { EMPTY_LOG, type LogState } from '../state/log-state.js';
import { reduce } from '../state/reduce.js';
import { TILE_WIDTH } from '../tiles.js';
import { formatTime, parseTime } from '../time.js';
import type { Report } from './findings.js';
import type { MapStore } from './map-store.js';
import type { SignedTree } from './signed-tree.js';

/** The state and the map of a log's first entries. */
export interface RebuiltLog {
  state: LogState;
  map: MapHead;
  /** Map roots, in base64, at the sizes that a later snapshot may name. */
  roots: ReadonlyMap<number, string>;
  /** The last valid snapshot entry. */
  snapshot: { index: number; entry: SnapshotEntry } | null;
}

export const NOTHING_REBUILT: RebuiltLog = {
  state: EMPTY_LOG,
  map: null,
  roots: new Map(),
  snapshot: null,
};

/** The monitor's knowledge of when entries were appended: a checkpoint and its times, in milliseconds since 1970. */
export interface Look {
  /** Number of leaves that the checkpoint covered. */
  size: number;
  /** When the monitor first received the checkpoint. */
  seen?: number;
  /** When the monitor began its last request that returned the checkpoint, or, for the newest checkpoint, its first. */
  at: number;
}

/** The merge delay in seconds, capped: a log could declare years. */
export const mergeDelayOf = ({ max_merge_delay }: SnapshotEntry): number =>
  Math.min(max_merge_delay, MAX_SNAPSHOT_MS / 1000);

const STEP_BUNDLES = 16;

/** Computes the map of a log from its entries, and compares it with every snapshot entry. */
export class Rebuild {
  private readonly pages: MapPages;

  constructor(
    private readonly ctx: LogContext,
    private readonly store: MapStore,
    public log: RebuiltLog = NOTHING_REBUILT,
  ) {
    this.pages = new MapPages(ctx.sha256, store);
  }

  find(key: Uint8Array): Promise<MapValue | null> {
    return this.pages.find(this.log.map, key);
  }

  /**
   * Processes the next entries of a tree that extends the rebuilt tree.
   *
   * @param looks polls for the check of the entries' times, ascending; null skips this check
   * @param end where to stop, at most the size of the tree
   * @returns false when there are no more entries
   * @throws ProtocolError `malformed_tile`; `malformed_map_page` when the store is damaged
   */
  async step(
    tree: SignedTree,
    looks: readonly Look[] | null,
    report: Report,
    end = tree.head.size,
  ): Promise<boolean> {
    const from = this.log.state.size;
    if (from >= end) return false;
    const to = Math.min(end, (Math.floor(from / TILE_WIDTH) + STEP_BUNDLES) * TILE_WIDTH);
    const bytes = await tree.entriesBetween(from, to);
    const entries = bytes.map(readEntry);
    let at = from;
    for (const size of sizesToVisit(entries, from)) {
      const ignored = await this.reduceTo(tree, bytes.slice(at - from, size - from));
      for (; at < size; at++) {
        const entry = entries[at - from]!;
        if (ignored.has(at)) report(ignoredEntry(at, entry), at);
        else if (entry?.type === 'key') report(keyEntry(at, entry));
        else if (entry?.type === 'snapshot') this.checkSnapshot(at, entry, report);
        if (entry !== null && looks !== null) this.checkTime(at, entry, looks, report);
      }
    }
    return true;
  }

  private async reduceTo(
    tree: SignedTree,
    entries: readonly Uint8Array[],
  ): Promise<ReadonlySet<number>> {
    const ignored: number[] = [];
    const first = this.log.state.size;
    for (let size = first; size < first + entries.length; size = this.log.state.size) {
      const reduced = await reduce(this.ctx, this.log.state, entries.slice(size - first), {
        values: (keys) => this.pages.findAll(this.log.map, keys),
        entries: (from, to) => tree.entriesBetween(from, to),
        rootAt: (size) => tree.rootAt(size),
      });
      const { head: map, superseded } = await this.pages.update(this.log.map, reduced.changes);
      const { state } = reduced;
      const roots = new Map(this.log.roots).set(state.size, this.rootOf(map));
      this.log = { ...this.log, state, map, roots };
      this.store.discard(superseded);
      ignored.push(...reduced.ignored);
    }
    return new Set(ignored);
  }

  private rootOf(map: MapHead): string {
    return toBase64(map?.hash ?? mapRoot(this.ctx.sha256, []));
  }

  private checkSnapshot(index: number, entry: SnapshotEntry, report: Report): void {
    const { size } = entry.logs[0]!;
    const root = this.log.roots.get(size);
    const where = `entry ${index}`;
    if (entry.logs.length > 1 || root === undefined) {
      const detail =
        entry.logs.length > 1
          ? `the snapshot covers ${entry.logs.length} logs, but this monitor rebuilds the map of one log only`
          : `this monitor has no map of ${size} leaves to compare with the map of the snapshot`;
      report({ code: 'map_root_unchecked', where, detail });
    } else if (root !== entry.map_root) {
      const detail = `the snapshot of ${size} leaves commits to the map ${entry.map_root}; the log gives ${root}`;
      report({ code: 'map_root_differs', where, detail });
    }
    const roots = new Map([...this.log.roots].filter(([at]) => at >= size));
    this.log = { ...this.log, roots, snapshot: { index, entry } };
  }

  /**
   * Compares the time of an entry with the first checkpoint that covers the entry, and with the last that does not.
   * Skips proofs, which may be appended long after their time: the next entry that is not a proof limits the time at
   * which they were appended.
   */
  private checkTime(index: number, entry: LogEntry, looks: readonly Look[], report: Report): void {
    if (entry.type === 'proof') return;
    const [time, where] = [parseTime(entry.time), `entry ${index}`];
    const covering = looks.find(({ size }) => size > index);
    if (covering !== undefined && time > (covering.seen ?? covering.at) + MAX_AHEAD_MS) {
      const detail = `the entry has the time ${entry.time}, but this monitor had a checkpoint that covers it more than a minute earlier`;
      report({ code: 'entry_ahead', where, detail });
    }
    const { snapshot } = this.log;
    const before = looks.findLast(({ size }) => size <= index);
    if (before === undefined || snapshot === null) return;
    const delay = mergeDelayOf(snapshot.entry);
    if (before.at - time <= delay * 1000) return;
    const detail = `the entry was appended at ${entry.time}, but the checkpoint at ${formatTime(before.at)} does not cover it; the merge delay is at most ${delay} s`;
    report({ code: 'merge_delay_exceeded', where, detail });
  }
}

/**
 * The sizes at which the map root is needed: each size that a snapshot among the entries names, and the size after each
 * later verdict, because the next snapshot will name one of these sizes. The last size is that after all entries.
 */
function sizesToVisit(entries: readonly (LogEntry | null)[], from: number): number[] {
  const end = from + entries.length;
  const named = entries.flatMap((entry) => (entry?.type === 'snapshot' ? entry.logs[0]!.size : []));
  const last = Math.max(from, ...named);
  const verdicts = entries.flatMap((entry, at) =>
    entry?.type === 'verdict' && from + at + 1 > last ? from + at + 1 : [],
  );
  const sizes = [...named, ...verdicts, end].filter((size) => size > from && size <= end);
  return [...new Set(sizes)].sort((a, b) => a - b);
}

function ignoredEntry(index: number, entry: LogEntry | null) {
  const what =
    entry === null ? 'these bytes are not a log entry' : `this ${entry.type} entry breaks a rule`;
  return {
    code: 'entry_ignored' as const,
    where: `entry ${index}`,
    detail: `${what}, and has no effect`,
  };
}

function keyEntry(index: number, { use, change, ...entry }: KeyEntry) {
  const key =
    'vkey' in entry
      ? entry.vkey
      : 'registration_hash' in entry
        ? entry.registration_hash
        : entry.key_id;
  const bound =
    'from_index' in entry
      ? `, from leaf ${entry.from_index} on`
      : 'from_size' in entry
        ? `, above ${entry.from_size} leaves`
        : '';
  const detail = `the log has the change "${change}" of the ${use} key ${key}${bound}`;
  return { code: 'key_entry' as const, where: `entry ${index}`, detail };
}
