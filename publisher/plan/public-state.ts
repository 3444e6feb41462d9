import { isSince1970, readEntry } from '#protocol/entries';
import type { MapHead } from '#protocol/map/paged-map';
import type { KeyEntry } from '#protocol/schemas/log-entry';
import { keysChangedBy, type LogContext } from '#protocol/state/log-keys';
import { EMPTY_LOG, type LogKey, type LogState } from '#protocol/state/log-state';
import { aepKeyMapKey, decodeAepKey, NONE } from '#protocol/state/record';
import { reduce } from '#protocol/state/reduce';
import { TILE_WIDTH } from '#protocol/tiles';
import { nativeCrypto } from '#runtime/crypto/node';
import type { CycleContext, PublicState } from '../context.js';
import { LostPageError, mismatch } from '../errors.js';
import type { Published } from '../store/published-files.js';
import type { VerifiedTree } from './tree.js';

const ALL_CHANGES = { shareChange: 0, waiting: new Set<string>() };

export const EMPTY_STATE: PublicState = {
  log: EMPTY_LOG,
  map: null,
  shares: null,
  ...ALL_CHANGES,
};

const contextOf = ({ logSigner }: CycleContext): LogContext => ({
  ...nativeCrypto,
  origin: logSigner.name,
  shard: 0,
});

/**
 * Applies the entries up to the last of `stops` to the state, in chunks that fit in memory.
 *
 * @param stops ascending sizes of the log
 * @param on `stop` is called with the state at each of these sizes, `entries` with every chunk of
 *   entries; the first entry of a chunk begins a tile
 */
export async function advance(
  ctx: CycleContext,
  tree: VerifiedTree,
  from: PublicState,
  stops: readonly number[],
  on: {
    entries: (first: number, entries: readonly Uint8Array[]) => Promise<void>;
    stop: (state: PublicState) => void;
  },
): Promise<{ state: PublicState; changes: number }> {
  let state = from;
  let changes = 0;
  for (const stop of stops) {
    while (state.log.size < stop) {
      const { log, map } = state;
      const first = log.size - (log.size % TILE_WIDTH);
      const entries = await tree.entries(first, Math.min(stop, first + ctx.chunkLeaves));
      ctx.progress();
      const reader = {
        values: (keys: readonly Uint8Array[]) => ctx.maps.findAll(map, keys),
        entries: (from: number, to: number) => tree.entries(from, to),
        rootAt: (size: number) => tree.rootAt(size),
      };
      const next = entries.slice(log.size - first);
      const reduced = await reduce(contextOf(ctx), log, next, reader, ctx.mostLeaves);
      ctx.progress();
      // If `reduce` stopped early, passes only the applied entries: the next chunk begins at the tile of the new size.
      await on.entries(first, entries.slice(0, reduced.state.size - first));
      changes += reduced.changes.length;
      state = { ...state, log: reduced.state, map: await ctx.maps.update(map, reduced.changes) };
      ctx.progress();
    }
    on.stop(state);
  }
  return { state, changes };
}

/**
 * The state to continue from: the last state of this process, or the state of the published
 * snapshot, rebuilt from the maps of that snapshot and the entries of the log.
 *
 * @param limit the lowest size at which the caller compares maps: a later state would not have
 *   the map of that size
 */
export async function startingState(
  ctx: CycleContext,
  tree: VerifiedTree,
  published: Published | null,
  limit: number,
): Promise<PublicState> {
  const { progress } = ctx.memory;
  const isNext = progress !== null && progress.from === (published?.index ?? null);
  if (isNext && progress.state.log.size <= limit) return progress.state;
  if (published === null) return EMPTY_STATE;
  const map = await ctx.maps.open(published.location, 'map');
  const shares = await ctx.maps.open(published.location, 'shares');
  const log = await restoreLogState(ctx, tree, published.snapshot.logs[0]!.size, map);
  return { log, map, shares, ...ALL_CHANGES };
}

/**
 * The state after the first `size` entries. A published snapshot covers these entries, so their last verdict entry is
 * valid, and the map has the record of every key: few entries are read.
 */
async function restoreLogState(
  ctx: CycleContext,
  tree: VerifiedTree,
  size: number,
  map: MapHead,
): Promise<LogState> {
  const [verdict, snapshot] = await Promise.all([
    ctx.registry.latestEntry('verdict', size),
    ctx.registry.latestEntry('snapshot', size),
  ]);
  const lastVerdict = verdict && (await verdictEntryAt(tree, verdict.leafIndex));
  if (lastVerdict === null) throw mismatch(`the log has no verdict entry below leaf ${size}`);
  const { index, entry } = lastVerdict;
  const { keys, retiredAt } = await restoreKeys(ctx, tree, size, map);
  return {
    size,
    keys,
    proofs: await countProofs(ctx, size, [...keys.values()]),
    verdict: { index, to: entry.to, expiredThrough: entry.expired_through },
    mayLowerExpiry: retiredAt > index,
    snapshot: snapshot && (await snapshotAt(tree, snapshot.leafIndex)),
  };
}

/** The data of the entry at `index`; null unless it is a snapshot entry about this log. */
export async function snapshotAt(tree: VerifiedTree, index: number): Promise<LogState['snapshot']> {
  const [bytes] = await tree.entries(index, index + 1);
  const entry = readEntry(bytes!);
  if (entry?.type !== 'snapshot' || entry.logs[0]!.shard !== 0) return null;
  const { size, lookup_from: lookupFrom } = entry.logs[0]!;
  return { index, size, lookupFrom };
}

/** Every key that was activated, and the index of the last retirement of a verifier key. */
async function restoreKeys(ctx: CycleContext, tree: VerifiedTree, size: number, map: MapHead) {
  const keys = new Map<string, LogKey>();
  let retiredAt = -1;
  for (const { leafIndex } of await ctx.registry.keyEntries()) {
    if (leafIndex >= size) break;
    const entry = await applyKeyEntry(ctx, tree, keys, leafIndex);
    if (entry?.use === 'verifier' && entry.change === 'retire') retiredAt = leafIndex;
  }
  for (const key of keys.values()) {
    if (key.use !== 'aep') continue;
    // Takes these indexes from the map: the log commits to the map, but not to the column by which key
    // entries are found, and only the map has the index of a delegated key's last proof.
    const value = await ctx.maps.find(map, aepKeyMapKey(0, key.index));
    if (value === null) throw new LostPageError(`the published map lacks the key ${key.id}`);
    const { retiredFrom, compromisedFrom } = decodeAepKey(value.record);
    keys.set(key.id, { ...key, retiredFrom, compromisedFrom });
  }
  return { keys, retiredAt };
}

/** Applies the key entry at `index` to `keys`. Returns the entry; null unless it changes a key. */
async function applyKeyEntry(
  ctx: CycleContext,
  tree: VerifiedTree,
  keys: Map<string, LogKey>,
  index: number,
): Promise<KeyEntry | null> {
  const [bytes] = await tree.entries(index, index + 1);
  const entry = readEntry(bytes!);
  if (entry?.type !== 'key' || !isSince1970(entry)) return null;
  const changed = keysChangedBy(contextOf(ctx), keys, index, entry);
  for (const key of changed) keys.set(key.id, key);
  return changed.length > 0 ? entry : null;
}

/** The keys at the end of `tree`, which may have key entries that `log` does not cover yet. */
export async function keysAtEnd(
  ctx: CycleContext,
  tree: VerifiedTree,
  log: LogState,
): Promise<ReadonlyMap<string, LogKey>> {
  const keys = new Map(log.keys);
  for (const { leafIndex } of await ctx.primary.keyEntries(log.size)) {
    if (leafIndex < tree.head.size) await applyKeyEntry(ctx, tree, keys, leafIndex);
  }
  return keys;
}

/** The number of proofs by each delegated key that is not retired yet. */
async function countProofs(
  { registry }: CycleContext,
  size: number,
  keys: readonly LogKey[],
): Promise<Map<string, number>> {
  const counted = keys.filter(
    ({ maxProofs, retiredFrom }) => maxProofs !== null && (retiredFrom ?? NONE) > size,
  );
  if (counted.length === 0) return new Map();
  const proofs = await registry.proofsByKey(counted, size);
  return new Map(counted.map(({ id }) => [id, proofs.get(id) ?? 0]));
}

/** Returns the verdict entry at `index`. Stops the publisher for any other entry. */
export async function verdictEntryAt(tree: VerifiedTree, index: number) {
  const [bytes] = await tree.entries(index, index + 1);
  const entry = readEntry(bytes!);
  if (entry?.type !== 'verdict') throw mismatch(`leaf ${index} is not a verdict entry`);
  return { index, entry };
}
